//! QEMU's plugin interface, version 1, of which this plugin uses a part.
//!
//! The functions are those of the program that has loaded the plugin. They are looked up by name,
//! so the Rust library also links into programs that are not QEMU.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// `qemu_plugin_id_t`.
pub(crate) type Id = u64;
/// A callback of QEMU with a CPU and a value of the plugin.
pub(crate) type Exec = unsafe extern "C" fn(c_uint, *mut c_void);
/// A callback at an access: CPU, kind, address, value of the plugin.
pub(crate) type Access = unsafe extern "C" fn(c_uint, u32, u64, *mut c_void);
/// A callback at the translation of a block.
pub(crate) type Translate = unsafe extern "C" fn(Id, *mut c_void);
/// A callback at the creation of a CPU.
pub(crate) type VcpuInit = unsafe extern "C" fn(Id, c_uint);
/// A callback at a system call: CPU, number, arguments.
pub(crate) type Syscall = unsafe extern "C" fn(Id, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
/// A callback at the return of a system call: CPU, number, result.
pub(crate) type SyscallReturn = unsafe extern "C" fn(Id, c_uint, i64, i64);

/// `QEMU_PLUGIN_CB_NO_REGS`.
pub(crate) const NO_REGS: c_int = 0;
/// `QEMU_PLUGIN_MEM_RW`.
pub(crate) const MEM_RW: c_int = 3;

/// The start of `qemu_info_t`.
#[repr(C)]
pub(crate) struct Info {
    /// The name of the instruction set.
    pub(crate) target_name: *const c_char,
}

macro_rules! functions {
    ($($name:ident = $symbol:literal: $signature:ty;)*) => {
        /// The functions of QEMU.
        pub(crate) struct Api { $(pub(crate) $name: $signature,)* }

        impl Api {
            /// Looks up all functions; `None` if the program has not all of them.
            fn find() -> Option<Self> {
                $(let $name = symbol($symbol)?;)*
                Some(Self {
                    // SAFETY: QEMU's function of this name has this signature since version 4.2.
                    $($name: unsafe { std::mem::transmute::<*mut c_void, $signature>($name) },)*
                })
            }
        }
    };
}

functions! {
    on_translation = c"qemu_plugin_register_vcpu_tb_trans_cb": unsafe extern "C" fn(Id, Translate);
    on_init = c"qemu_plugin_register_vcpu_init_cb": unsafe extern "C" fn(Id, VcpuInit);
    on_syscall = c"qemu_plugin_register_vcpu_syscall_cb": unsafe extern "C" fn(Id, Syscall);
    on_return = c"qemu_plugin_register_vcpu_syscall_ret_cb": unsafe extern "C" fn(Id, SyscallReturn);
    on_exit = c"qemu_plugin_register_atexit_cb":
        unsafe extern "C" fn(Id, unsafe extern "C" fn(Id, *mut c_void), *mut c_void);
    on_block = c"qemu_plugin_register_vcpu_tb_exec_cb": unsafe extern "C" fn(*mut c_void, Exec, c_int, *mut c_void);
    on_instruction = c"qemu_plugin_register_vcpu_insn_exec_cb":
        unsafe extern "C" fn(*mut c_void, Exec, c_int, *mut c_void);
    on_access = c"qemu_plugin_register_vcpu_mem_cb":
        unsafe extern "C" fn(*mut c_void, Access, c_int, c_int, *mut c_void);
    instructions = c"qemu_plugin_tb_n_insns": unsafe extern "C" fn(*mut c_void) -> usize;
    instruction = c"qemu_plugin_tb_get_insn": unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
    address = c"qemu_plugin_insn_vaddr": unsafe extern "C" fn(*mut c_void) -> u64;
    host_address = c"qemu_plugin_insn_haddr": unsafe extern "C" fn(*mut c_void) -> *mut c_void;
    size = c"qemu_plugin_insn_size": unsafe extern "C" fn(*mut c_void) -> usize;
    size_shift = c"qemu_plugin_mem_size_shift": unsafe extern "C" fn(u32) -> c_uint;
    is_store = c"qemu_plugin_mem_is_store": unsafe extern "C" fn(u32) -> bool;
    start_code = c"qemu_plugin_start_code": unsafe extern "C" fn() -> u64;
    entry_code = c"qemu_plugin_entry_code": unsafe extern "C" fn() -> u64;
}

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is a C string; the handle means all objects of the process.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

static API: OnceLock<Option<Api>> = OnceLock::new();

/// The functions of QEMU; `None` outside QEMU.
pub(crate) fn get() -> Option<&'static Api> {
    API.get_or_init(Api::find).as_ref()
}
