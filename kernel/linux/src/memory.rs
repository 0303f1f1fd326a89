//! The memory manager of the machine, and copies from and to user memory.
//!
//! The kernel copies by loads and stores in the address space that its CPU runs. A fault of such an
//! access is served and recorded like a fault of the program.

use crate::errno::Errno;
use crate::inode::RunningProgram;
use crate::limits::ProcessLimits;
use crate::options::Options;
use crate::record;
use crate::task::{TaskId, scheduler};
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use pagewright_hal::user::{self, UserFault};
use pagewright_hal::{BootInfo, Machine};
use pagewright_mm::space::Privileges;
use pagewright_mm::{FaultError, Mm};
use pagewright_sync::Arc;
use pagewright_tlb::frames::{MemoryLayout, NodeSpec};
use pagewright_types::{Order, PAGE_SIZE, VirtAddr};
use spin::Once;

/// An address space of this machine.
pub(crate) type Space = pagewright_mm::Space<Machine>;
/// A file of the memory manager of this machine.
pub(crate) type FileObject = pagewright_mm::file::FileObject<Machine>;

static MM: Once<Mm<Machine>> = Once::new();

/// The memory manager.
///
/// # Panics
/// Before [`start`].
pub(crate) fn mm() -> &'static Mm<Machine> {
    MM.get().expect("the memory manager is started at boot")
}

/// Starts the memory manager with the free memory of the machine.
pub(crate) fn start(info: &BootInfo, options: &Options) {
    let nodes: Vec<NodeSpec<'_>> =
        info.nodes.iter().map(|node| NodeSpec { id: node.id, ranges: &node.ranges, cpus: node.cpus }).collect();
    let layout = MemoryLayout { distances: Some(&info.distances), ..MemoryLayout::new(&nodes) };
    MM.call_once(|| match Mm::try_new(Machine, &layout, options.settings()) {
        Ok(mm) => mm,
        Err(error) => panic!("the memory manager does not start: {error}"),
    });
}

/// A block of frames for the kernel heap, of at least `bytes` bytes.
pub(crate) fn heap_block(bytes: usize) -> Option<&'static mut [u8]> {
    let mm = MM.get()?;
    let pages = (bytes as u64).div_ceil(PAGE_SIZE).next_power_of_two();
    let order = Order::try_new(pages.trailing_zeros() as u8)?;
    let block = mm.tlb().alloc(mm.tlb().request(order)).ok()?;
    Some(Machine::leak_block(block))
}

/// The commands of `membarrier` that a space has registered for.
pub(crate) struct RegisteredBarriers(AtomicU32);

impl RegisteredBarriers {
    pub(crate) fn register(&self, command: u32) {
        self.0.fetch_or(command, Ordering::Relaxed);
    }

    pub(crate) fn has(&self, command: u32) -> bool {
        self.0.load(Ordering::Relaxed) & command != 0
    }
}

/// An address space that ends with its last handle.
///
/// No CPU runs the space when the last handle is dropped. The second field is the privileges of
/// its limits ([`Privileges`]), the third the file of its program.
pub(crate) struct SpaceHandle(pub(crate) Arc<Space>, AtomicU8, RunningProgram, RegisteredBarriers);

impl SpaceHandle {
    /// A new space with these limits.
    pub(crate) fn new(
        space: Arc<Space>,
        limits: &ProcessLimits,
        privileges: Privileges,
        program: RunningProgram,
    ) -> Self {
        mm().set_limits(&space, limits.space_limits(privileges));
        Self(space, AtomicU8::new(privileges.bits()), program, RegisteredBarriers(AtomicU32::new(0)))
    }

    /// The space of a forked child, with the parent's limits, program and registrations.
    pub(crate) fn forked(space: Arc<Space>, parent: &Self) -> Self {
        let barriers = RegisteredBarriers(AtomicU32::new(parent.3.0.load(Ordering::Relaxed)));
        Self(space, AtomicU8::new(parent.1.load(Ordering::Relaxed)), parent.2.clone(), barriers)
    }

    /// The commands of `membarrier` that its threads may use.
    pub(crate) fn barriers(&self) -> &RegisteredBarriers {
        &self.3
    }

    /// The file of its program (`exe_file`).
    pub(crate) fn program(&self) -> &RunningProgram {
        &self.2
    }

    /// Gives the space the privileges of the thread that makes a memory call.
    ///
    /// Threads with different privileges that share a space and make calls at the same time may use
    /// each other's.
    pub(crate) fn set_privileges(&self, process: TaskId, privileges: Privileges) {
        if self.1.load(Ordering::Relaxed) == privileges.bits() {
            return;
        }
        let limits = scheduler().process(process).limits.clone();
        mm().set_limits(&self.0, limits.space_limits(privileges));
        self.1.store(privileges.bits(), Ordering::Relaxed);
    }

    /// Sets its limits, with the privileges that it has.
    pub(crate) fn set_limits(&self, limits: &ProcessLimits) {
        let privileges = Privileges::from_bits_truncate(self.1.load(Ordering::Relaxed));
        mm().set_limits(&self.0, limits.space_limits(privileges));
    }
}

impl Drop for SpaceHandle {
    fn drop(&mut self) {
        mm().end_space(&self.0);
    }
}

/// The longest argument of a program that is read from user memory (`MAX_ARG_STRLEN`).
const STRING_MAX: usize = 128 << 10;
/// The size of the longest path, with its zero byte.
const PATH_MAX: usize = 4096;

impl SpaceHandle {
    /// Serves a fault of a copy, and returns how many bytes were copied before it.
    pub(crate) fn serve(&self, fault: UserFault) -> Result<usize, FaultError> {
        record::ordered(|| {
            mm().fault(&self.0, fault.va, fault.access)?;
            record::fault(fault.va, fault.access, true);
            Ok(fault.done)
        })
    }

    /// Copies from user memory of the space, which this CPU runs.
    pub(crate) fn read(&self, from: VirtAddr, to: &mut [u8]) -> Result<(), Errno> {
        let mut done = 0;
        while let Err(fault) = user::read(from.checked_add(done as u64).ok_or(Errno::EFAULT)?, &mut to[done..]) {
            done += self.serve(fault)?;
        }
        Ok(())
    }

    /// Copies to user memory of the space, which this CPU runs.
    pub(crate) fn write(&self, to: VirtAddr, from: &[u8]) -> Result<(), Errno> {
        let mut done = 0;
        while let Err(fault) = user::write(to.checked_add(done as u64).ok_or(Errno::EFAULT)?, &from[done..]) {
            done += self.serve(fault)?;
        }
        Ok(())
    }

    /// Copies from user memory up to the first address that cannot be read, and returns how much.
    pub(crate) fn read_some(&self, from: VirtAddr, to: &mut [u8]) -> usize {
        self.copy_some(from, to.len(), |at, done| user::read(at, &mut to[done..]))
    }

    /// Copies to user memory up to the first address that cannot be written, and returns how much.
    pub(crate) fn write_some(&self, to: VirtAddr, from: &[u8]) -> usize {
        self.copy_some(to, from.len(), |at, done| user::write(at, &from[done..]))
    }

    fn copy_some(
        &self,
        at: VirtAddr,
        len: usize,
        mut copy: impl FnMut(VirtAddr, usize) -> Result<(), UserFault>,
    ) -> usize {
        let mut done = 0;
        while let Some(at) = at.checked_add(done as u64) {
            let Err(fault) = copy(at, done) else { return len };
            done += fault.done;
            if self.serve(fault).is_err() {
                break;
            }
        }
        done
    }

    /// Loads an aligned word with one access.
    pub(crate) fn load_u32(&self, from: VirtAddr) -> Result<u32, Errno> {
        loop {
            match user::load_u32(from) {
                Ok(value) => return Ok(value),
                Err(fault) => self.serve(fault)?,
            };
        }
    }

    /// Stores `new` in an aligned word if it holds `old`, and returns what it held.
    pub(crate) fn compare_exchange_u32(&self, at: VirtAddr, old: u32, new: u32) -> Result<u32, Errno> {
        loop {
            match user::compare_exchange_u32(at, old, new) {
                Ok(value) => return Ok(value),
                Err(fault) => self.serve(fault)?,
            };
        }
    }

    /// Reads an array of bytes.
    pub(crate) fn read_array<const N: usize>(&self, from: VirtAddr) -> Result<[u8; N], Errno> {
        let mut bytes = [0; N];
        self.read(from, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads a `u64`.
    pub(crate) fn read_u64(&self, from: VirtAddr) -> Result<u64, Errno> {
        self.read_array(from).map(u64::from_le_bytes)
    }

    /// Writes a `u32`.
    pub(crate) fn write_u32(&self, to: VirtAddr, value: u32) -> Result<(), Errno> {
        self.write(to, &value.to_le_bytes())
    }

    /// Writes a `u64`.
    pub(crate) fn write_u64(&self, to: VirtAddr, value: u64) -> Result<(), Errno> {
        self.write(to, &value.to_le_bytes())
    }

    /// Reads `len` bytes into a new vector.
    pub(crate) fn read_vec(&self, from: VirtAddr, len: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len)?;
        bytes.resize(len, 0);
        self.read(from, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads an argument of a program.
    pub(crate) fn read_string(&self, from: VirtAddr) -> Result<Vec<u8>, Errno> {
        self.read_to_zero(from, STRING_MAX, Errno::E2BIG)
    }

    /// Reads a path (`getname`), which may be empty.
    pub(crate) fn read_path(&self, from: VirtAddr) -> Result<String, Errno> {
        let path = self.read_to_zero(from, PATH_MAX, Errno::ENAMETOOLONG)?;
        Ok(String::from_utf8_lossy(&path).into_owned())
    }

    /// Reads a name, which is cut after `max` bytes.
    pub(crate) fn read_name(&self, from: VirtAddr, max: usize) -> Result<String, Errno> {
        let mut bytes = Vec::new();
        while bytes.len() < max {
            let at = from.checked_add(bytes.len() as u64).ok_or(Errno::EFAULT)?;
            match self.read_array(at)? {
                [0] => break,
                [byte] => bytes.push(byte),
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads a string that ends with a zero byte, of at most `max` bytes with it.
    fn read_to_zero(&self, from: VirtAddr, max: usize, too_long: Errno) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::new();
        loop {
            let at = from.checked_add(bytes.len() as u64).ok_or(Errno::EFAULT)?;
            let part = self.read_vec(at, ((PAGE_SIZE - at.page_offset()) as usize).min(256))?;
            if let Some(end) = part.iter().position(|byte| *byte == 0) {
                bytes.extend_from_slice(&part[..end]);
                return if bytes.len() < max { Ok(bytes) } else { Err(too_long) };
            }
            bytes.extend_from_slice(&part);
            if bytes.len() >= max {
                return Err(too_long);
            }
        }
    }
}
