//! `membarrier`: memory barriers on the CPUs that run other threads (`kernel/sched/membarrier.c`).
//!
//! Each command stops all other CPUs for a moment, which orders more than any command asks for.
//!
//! Not guaranteed: commands for restartable sequences, as in a Linux without `CONFIG_RSEQ`.

use super::Arguments;
use crate::errno::Errno;
use crate::stop_machine;
use crate::task::{SyscallResult, Thread};
use linux_raw_sys::general::membarrier_cmd as command;

const QUERY: u32 = command::MEMBARRIER_CMD_QUERY as u32;
const GLOBAL: u32 = command::MEMBARRIER_CMD_GLOBAL as u32;
const GLOBAL_EXPEDITED: u32 = command::MEMBARRIER_CMD_GLOBAL_EXPEDITED as u32;
const REGISTER_GLOBAL: u32 = command::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED as u32;
const PRIVATE: u32 = command::MEMBARRIER_CMD_PRIVATE_EXPEDITED as u32;
const REGISTER_PRIVATE: u32 = command::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED as u32;
const SYNC_CORE: u32 = command::MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE as u32;
const REGISTER_SYNC_CORE: u32 = command::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE as u32;
/// The commands besides `QUERY`, each of which is a bit.
const ALL: u32 =
    GLOBAL | GLOBAL_EXPEDITED | REGISTER_GLOBAL | PRIVATE | REGISTER_PRIVATE | SYNC_CORE | REGISTER_SYNC_CORE;

/// `membarrier`.
pub(super) fn membarrier(thread: &mut Thread, a: Arguments) -> SyscallResult {
    if a[1] as u32 != 0 {
        return Err(Errno::EINVAL.into());
    }
    let barriers = &thread.space.barriers();
    match a[0] as u32 {
        QUERY => return Ok(ALL.into()),
        REGISTER_GLOBAL => {}
        command @ (REGISTER_PRIVATE | REGISTER_SYNC_CORE) => barriers.register(command),
        GLOBAL | GLOBAL_EXPEDITED => stop_machine::run(|| ()),
        PRIVATE if barriers.has(REGISTER_PRIVATE) => stop_machine::run(|| ()),
        SYNC_CORE if barriers.has(REGISTER_SYNC_CORE) => stop_machine::run(|| ()),
        PRIVATE | SYNC_CORE => return Err(Errno::EPERM.into()),
        _ => return Err(Errno::EINVAL.into()),
    }
    Ok(0)
}
