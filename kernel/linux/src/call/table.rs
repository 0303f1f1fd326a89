//! The table of system calls: which function serves which number.
//!
//! Memory calls are decoded by `pagewright_syscall`. Every other call has a row in [`HANDLERS`], or
//! in `legacy::HANDLERS` if only x86-64 has it. A call without a row fails with `ENOSYS` and is
//! counted.

#[cfg(target_arch = "x86_64")]
use super::legacy;
use super::{
    Arguments, attribute, clone, credential, descriptor, epoll, futex, information, ioctl, link, lock, membarrier,
    memory, message, messages, mount, nice, path, pidfd, poll, process, schedule, session, shm, signal, socket,
    socket_option, splice, stat, time, timer, transfer, wait, xattr,
};
use crate::errno::Errno;
use crate::report;
use crate::task::{SyscallResult, Thread};
use pagewright_syscall::LinuxCall;
use syscalls::Sysno;

/// The function that serves a call.
pub(super) type Handler = fn(&mut Thread, Arguments) -> SyscallResult;

/// `fstatat`, whose number has a newer name on x86-64.
#[cfg(target_arch = "x86_64")]
const FSTATAT: Sysno = Sysno::newfstatat;
#[cfg(target_arch = "aarch64")]
const FSTATAT: Sysno = Sysno::fstatat;

/// The calls that are not memory calls, and `fcntl`, of which the decoder has two commands.
const HANDLERS: &[(Sysno, Handler)] = &[
    (Sysno::read, transfer::read),
    (Sysno::write, transfer::write),
    (Sysno::readv, transfer::readv),
    (Sysno::writev, transfer::writev),
    (Sysno::pread64, transfer::pread64),
    (Sysno::pwrite64, transfer::pwrite64),
    (Sysno::preadv, transfer::preadv),
    (Sysno::pwritev, transfer::pwritev),
    (Sysno::preadv2, transfer::preadv2),
    (Sysno::pwritev2, transfer::pwritev2),
    (Sysno::lseek, descriptor::lseek),
    (Sysno::close, descriptor::close),
    (Sysno::close_range, descriptor::close_range),
    (Sysno::dup, descriptor::dup),
    (Sysno::dup3, descriptor::dup3),
    (Sysno::fcntl, descriptor::fcntl),
    (Sysno::ioctl, ioctl::ioctl),
    (Sysno::pipe2, descriptor::pipe2),
    (Sysno::flock, lock::flock),
    (Sysno::fadvise64, descriptor::fadvise),
    (Sysno::readahead, descriptor::readahead),
    (Sysno::sendfile, transfer::sendfile),
    (Sysno::fsync, descriptor::fsync),
    (Sysno::fdatasync, descriptor::fsync),
    (Sysno::pidfd_open, pidfd::open),
    (Sysno::openat, path::openat),
    (Sysno::unlinkat, link::unlinkat),
    (Sysno::mkdirat, link::mkdirat),
    (Sysno::mknodat, link::mknodat),
    (Sysno::symlinkat, link::symlinkat),
    (Sysno::readlinkat, path::readlinkat),
    (Sysno::faccessat, path::faccessat),
    (Sysno::faccessat2, path::faccessat2),
    (Sysno::fchmodat, attribute::fchmodat),
    (Sysno::fchmod, attribute::fchmod),
    (Sysno::umask, path::umask),
    (Sysno::mount, mount::mount),
    (Sysno::umount2, mount::umount2),
    (Sysno::fchownat, attribute::fchownat),
    (Sysno::fchown, attribute::fchown),
    (Sysno::utimensat, attribute::utimensat),
    (Sysno::statfs, attribute::statfs),
    (Sysno::fstatfs, attribute::fstatfs),
    (Sysno::getxattr, xattr::getxattr),
    (Sysno::lgetxattr, xattr::lgetxattr),
    (Sysno::fgetxattr, xattr::fgetxattr),
    (Sysno::setxattr, xattr::setxattr),
    (Sysno::lsetxattr, xattr::lsetxattr),
    (Sysno::fsetxattr, xattr::fsetxattr),
    (Sysno::listxattr, xattr::listxattr),
    (Sysno::llistxattr, xattr::llistxattr),
    (Sysno::flistxattr, xattr::flistxattr),
    (Sysno::removexattr, xattr::removexattr),
    (Sysno::lremovexattr, xattr::lremovexattr),
    (Sysno::fremovexattr, xattr::fremovexattr),
    (Sysno::linkat, link::linkat),
    (Sysno::renameat, |thread, a| link::renameat2(thread, [a[0], a[1], a[2], a[3], 0, 0])),
    (Sysno::renameat2, link::renameat2),
    (Sysno::truncate, path::truncate),
    (Sysno::chdir, path::chdir),
    (Sysno::getcwd, path::getcwd),
    (Sysno::getdents64, path::getdents64),
    (Sysno::fstat, stat::fstat),
    (FSTATAT, stat::fstatat),
    (Sysno::statx, stat::statx),
    (Sysno::ppoll, poll::ppoll),
    (Sysno::pselect6, poll::pselect6),
    (Sysno::eventfd2, poll::eventfd2),
    (Sysno::epoll_create1, epoll::epoll_create1),
    (Sysno::epoll_ctl, epoll::epoll_ctl),
    (Sysno::epoll_pwait, epoll::epoll_pwait),
    (Sysno::epoll_pwait2, epoll::epoll_pwait2),
    (Sysno::socket, socket::socket),
    (Sysno::socketpair, socket::socketpair),
    (Sysno::bind, socket::bind),
    (Sysno::listen, socket::listen),
    (Sysno::accept, |thread, a| socket::accept4(thread, [a[0], a[1], a[2], 0, 0, 0])),
    (Sysno::accept4, socket::accept4),
    (Sysno::connect, socket::connect),
    (Sysno::getsockname, socket::getsockname),
    (Sysno::getpeername, socket::getpeername),
    (Sysno::shutdown, socket::shutdown),
    (Sysno::sendto, message::sendto),
    (Sysno::recvfrom, message::recvfrom),
    (Sysno::sendmsg, message::sendmsg),
    (Sysno::recvmsg, message::recvmsg),
    (Sysno::sendmmsg, messages::sendmmsg),
    (Sysno::recvmmsg, messages::recvmmsg),
    (Sysno::setsockopt, socket_option::setsockopt),
    (Sysno::getsockopt, socket_option::getsockopt),
    (Sysno::vmsplice, splice::vmsplice),
    (Sysno::shmget, shm::shmget),
    (Sysno::shmat, shm::shmat),
    (Sysno::shmdt, shm::shmdt),
    (Sysno::shmctl, shm::shmctl),
    (Sysno::remap_file_pages, shm::remap_file_pages),
    (Sysno::process_mrelease, pidfd::process_mrelease),
    (Sysno::futex_waitv, futex::futex_waitv),
    (Sysno::clone3, clone::clone3),
    (Sysno::execve, process::execve),
    (Sysno::execveat, process::execveat),
    (Sysno::wait4, wait::wait4),
    (Sysno::waitid, wait::waitid),
    (Sysno::exit, process::exit),
    (Sysno::exit_group, process::exit_group),
    (Sysno::rt_sigaction, signal::rt_sigaction),
    (Sysno::rt_sigprocmask, signal::rt_sigprocmask),
    (Sysno::rt_sigreturn, signal::rt_sigreturn),
    (Sysno::rt_sigsuspend, signal::rt_sigsuspend),
    (Sysno::rt_sigpending, signal::rt_sigpending),
    (Sysno::rt_sigtimedwait, signal::rt_sigtimedwait),
    (Sysno::rt_sigqueueinfo, signal::rt_sigqueueinfo),
    (Sysno::rt_tgsigqueueinfo, signal::rt_tgsigqueueinfo),
    (Sysno::sigaltstack, signal::sigaltstack),
    (Sysno::kill, signal::kill),
    (Sysno::pidfd_send_signal, signal::pidfd_send_signal),
    (Sysno::tkill, signal::tkill),
    (Sysno::tgkill, signal::tgkill),
    (Sysno::clock_gettime, time::clock_gettime),
    (Sysno::clock_getres, time::clock_getres),
    (Sysno::clock_nanosleep, time::clock_nanosleep),
    (Sysno::gettimeofday, time::gettimeofday),
    (Sysno::nanosleep, time::nanosleep),
    (Sysno::setitimer, timer::setitimer),
    (Sysno::getitimer, timer::getitimer),
    (Sysno::timer_create, timer::timer_create),
    (Sysno::timer_settime, timer::timer_settime),
    (Sysno::timer_gettime, timer::timer_gettime),
    (Sysno::timer_getoverrun, timer::timer_getoverrun),
    (Sysno::timer_delete, timer::timer_delete),
    (Sysno::times, time::times),
    (Sysno::sched_yield, schedule::sched_yield),
    (Sysno::getpid, information::getpid),
    (Sysno::gettid, information::gettid),
    (Sysno::getppid, information::getppid),
    (Sysno::getpgid, session::getpgid),
    (Sysno::setpgid, session::setpgid),
    (Sysno::getsid, session::getsid),
    (Sysno::setsid, session::setsid),
    (Sysno::getuid, credential::getuid),
    (Sysno::geteuid, credential::geteuid),
    (Sysno::getgid, credential::getgid),
    (Sysno::getegid, credential::getegid),
    (Sysno::setuid, credential::setuid),
    (Sysno::setgid, credential::setgid),
    (Sysno::setreuid, credential::setreuid),
    (Sysno::setregid, credential::setregid),
    (Sysno::setresuid, credential::setresuid),
    (Sysno::setresgid, credential::setresgid),
    (Sysno::getresuid, credential::getresuid),
    (Sysno::getresgid, credential::getresgid),
    (Sysno::setfsuid, credential::setfsuid),
    (Sysno::setfsgid, credential::setfsgid),
    (Sysno::getgroups, credential::getgroups),
    (Sysno::setgroups, credential::setgroups),
    (Sysno::capget, credential::capget),
    (Sysno::capset, credential::capset),
    (Sysno::set_tid_address, information::set_tid_address),
    (Sysno::set_robust_list, futex::set_robust_list),
    (Sysno::get_robust_list, futex::get_robust_list),
    (Sysno::getrandom, information::getrandom),
    (Sysno::uname, information::uname),
    (Sysno::sethostname, information::sethostname),
    (Sysno::setdomainname, information::setdomainname),
    (Sysno::sysinfo, information::sysinfo),
    (Sysno::getrusage, information::getrusage),
    (Sysno::prctl, information::prctl),
    (Sysno::getcpu, information::getcpu),
    (Sysno::sched_getaffinity, schedule::sched_getaffinity),
    (Sysno::sched_setaffinity, schedule::sched_setaffinity),
    (Sysno::sched_setscheduler, schedule::sched_setscheduler),
    (Sysno::sched_getscheduler, schedule::sched_getscheduler),
    (Sysno::sched_setparam, schedule::sched_setparam),
    (Sysno::sched_getparam, schedule::sched_getparam),
    (Sysno::sched_get_priority_max, schedule::sched_get_priority_max),
    (Sysno::sched_get_priority_min, schedule::sched_get_priority_min),
    (Sysno::sched_rr_get_interval, schedule::sched_rr_get_interval),
    (Sysno::membarrier, membarrier::membarrier),
    (Sysno::getpriority, nice::getpriority),
    (Sysno::setpriority, nice::setpriority),
];

/// The calls that make a process, a file or a descriptor.
const CREATING: &[Sysno] = &[
    Sysno::clone,
    Sysno::clone3,
    Sysno::execve,
    Sysno::execveat,
    Sysno::openat,
    Sysno::mkdirat,
    Sysno::symlinkat,
    Sysno::linkat,
    Sysno::renameat,
    Sysno::renameat2,
    Sysno::pipe2,
    Sysno::eventfd2,
    Sysno::mknodat,
    Sysno::mount,
    Sysno::epoll_create1,
    Sysno::epoll_ctl,
    Sysno::socket,
    Sysno::socketpair,
    Sysno::bind,
    Sysno::connect,
    Sysno::accept,
    Sysno::accept4,
    Sysno::sendmsg,
    Sysno::sendmmsg,
    Sysno::shmget,
    Sysno::memfd_create,
    Sysno::pidfd_open,
    Sysno::timer_create,
];

/// Kernel memory that must be free before a creating call begins.
///
/// The call itself needs less, and does not check each of its allocations. Calls that end or remove
/// something need little and are never refused.
const FREE_MEMORY: usize = 16 << 10;

/// The entry of a number.
#[derive(Clone, Copy)]
struct Entry {
    handler: Option<Handler>,
    /// Whether the call needs [`FREE_MEMORY`].
    creates: bool,
}

/// The limit of call numbers.
const NUMBERS: usize = 512;

static TABLE: [Entry; NUMBERS] = {
    let table = with_rows([Entry { handler: None, creates: false }; NUMBERS], HANDLERS, CREATING);
    #[cfg(target_arch = "x86_64")]
    let table = with_rows(table, legacy::HANDLERS, legacy::CREATING);
    table
};

const fn with_rows(mut table: [Entry; NUMBERS], handlers: &[(Sysno, Handler)], creating: &[Sysno]) -> [Entry; NUMBERS] {
    let mut row = 0;
    while row < handlers.len() {
        table[handlers[row].0.id() as usize].handler = Some(handlers[row].1);
        row += 1;
    }
    row = 0;
    while row < creating.len() {
        table[creating[row].id() as usize].creates = true;
        row += 1;
    }
    table
}

/// Serves one call.
pub(crate) fn serve(thread: &mut Thread, number: u64, a: Arguments) -> SyscallResult {
    let entry = usize::try_from(number).ok().and_then(|number| TABLE.get(number));
    let Some(Entry { handler, creates }) = entry else { return missing(number) };
    if *creates && !pagewright_hal::can_allocate(FREE_MEMORY) {
        return Err(Errno::ENOMEM.into());
    }
    if let Some(handler) = handler {
        return handler(thread, a);
    }
    match LinuxCall::from_number(memory::ISA, number) {
        Some(call) => memory::serve(thread, call, a),
        None => missing(number),
    }
}

/// Counts a call that is not implemented.
pub(super) fn missing(number: u64) -> SyscallResult {
    report::count_missing(number);
    Err(Errno::ENOSYS.into())
}
