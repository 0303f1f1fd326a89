//! Lines as valgrind 3.19 writes them, and their items.

use super::*;

fn items(line: &str) -> Vec<LogItem> {
    let mut rest = line.as_bytes();
    let mut items = Vec::new();
    while let Some(item) = item(&mut rest).unwrap_or_else(|_| panic!("{line:?} is refused")) {
        items.push(item);
    }
    items
}

fn number(value: u64) -> Arg {
    Arg { value, text: None }
}

fn string(value: u64, text: &str) -> Arg {
    Arg { value, text: Some(text.as_bytes().to_vec()) }
}

#[test]
fn each_kind_of_access_is_parsed() {
    let parsed = |line: &str| access(line.as_bytes());
    assert_eq!(parsed("I  0401ab70,3"), Some(Access { kind: AccessKind::Fetch, addr: 0x0401_ab70, size: 3 }));
    assert_eq!(parsed(" L 1ffefff000,8"), Some(Access { kind: AccessKind::Load, addr: 0x1f_feff_f000, size: 8 }));
    assert_eq!(parsed(" S 04a27a18,16"), Some(Access { kind: AccessKind::Store, addr: 0x04a2_7a18, size: 16 }));
    assert_eq!(parsed(" M 04a1ea88,8"), Some(Access { kind: AccessKind::Modify, addr: 0x04a1_ea88, size: 8 }));
    for bad in ["I  0401ab70", "I  ,3", " L 12,", " L 12,x", " X 12,3", "I  zz,3", "", " L 11112222333344445,8"] {
        assert_eq!(parsed(bad), None, "{bad:?}");
    }
}

#[test]
fn a_call_has_its_result_on_its_line() {
    assert_eq!(
        items("SYSCALL[3028,1](9) sys_mmap ( 0x0, 8192, 3, 34, 4294967295, 0 ) --> [pre-success] Success(0x4835000) "),
        [LogItem::Syscall(Syscall {
            slot: 1,
            number: 9,
            args: [0, 8192, 3, 34, 0xffff_ffff, 0].map(number).to_vec(),
            outcome: CallOutcome::Done(Ok(0x0483_5000)),
        })]
    );
    assert_eq!(
        items("SYSCALL[3028,1](21) sys_access ( 0x402a2a0(/etc/ld.so.preload), 4 )[sync] --> Failure(0x2) "),
        [LogItem::Syscall(Syscall {
            slot: 1,
            number: 21,
            args: vec![string(0x0402_a2a0, "/etc/ld.so.preload"), number(4)],
            outcome: CallOutcome::Done(Err(2)),
        })]
    );
}

#[test]
fn a_pending_call_has_its_result_on_a_later_line() {
    let call = items("SYSCALL[7,2](28) sys_madvise ( 0x4a2a000, 8368128, 4 ) --> [async] ... ");
    let [LogItem::Syscall(call)] = &call[..] else { panic!("{call:?}") };
    assert_eq!((call.slot, call.number, call.outcome), (2, 28, CallOutcome::Pending));
    assert_eq!(
        items("SYSCALL[7,2](28) ... [async] --> Success(0x0) "),
        [LogItem::Completed { slot: 2, outcome: CallOutcome::Done(Ok(0)) }]
    );
}

#[test]
fn an_access_may_follow_a_call_on_its_line() {
    let glued = items("SYSCALL[7,1](15) sys_rt_sigreturn ( ) --> [pre-success] NoWriteResultI  04919353,6");
    let [LogItem::Syscall(call), LogItem::Access(access)] = &glued[..] else { panic!("{glued:?}") };
    assert_eq!((call.args.len(), call.outcome), (0, CallOutcome::NoResult));
    assert_eq!(access.addr, 0x0491_9353);
    let glued = items("SYSCALL[7,1](11) sys_munmap ( 0x483c000, 33763 )[sync] --> Success(0x0) I  0491935b,2");
    assert!(matches!(
        &glued[..],
        [LogItem::Syscall(_), LogItem::Access(Access { kind: AccessKind::Fetch, addr: 0x0491_935b, size: 2 })]
    ));
}

#[test]
fn a_note_of_the_scheduler_may_follow_a_result() {
    let glued = items(
        "SYSCALL[3319,1](56) sys_clone ( 3d0f00, 0x5229f70, 0x522a990, 0x522a990, 0x522a6c0 ) --> [pre-success] Success(0xcf8) \
         --3319--   SCHED[1]: releasing lock (VG_(vg_yield)) -> VgTs_Yielding",
    );
    let [LogItem::Syscall(call), LogItem::Ignored] = &glued[..] else { panic!("{glued:?}") };
    assert_eq!((call.args[0].value, call.outcome), (0x3d_0f00, CallOutcome::Done(Ok(0xcf8))));
    assert_eq!(
        items("--3319--   SCHED[2]:  acquired lock (thread_wrapper(starting new thread))"),
        [LogItem::Acquired { slot: 2, why: LockReason::Started }]
    );
    assert_eq!(
        items("--3319--   SCHED[1]:  acquired lock (VG_(vg_yield))"),
        [LogItem::Acquired { slot: 1, why: LockReason::Other }]
    );
}

#[test]
fn a_fork_has_a_bare_result() {
    let glued = items(
        "SYSCALL[3083,1](56) sys_clone ( 1200011, 0x0, 0x0, 0x4a27a10, 0x0 )   clone(fork): process 3083 created child 3084",
    );
    let [LogItem::Syscall(call), LogItem::Forked { child: 3084 }] = &glued[..] else { panic!("{glued:?}") };
    assert_eq!((call.args[0].value, call.outcome), (0x120_0011, CallOutcome::NotPrinted));
    assert_eq!(items(" --> [pre-success] Success(0xc0c) "), [LogItem::BareResult(CallOutcome::Done(Ok(0xc0c)))]);
}

#[test]
fn the_new_preamble_follows_an_exec_on_its_line() {
    let glued = items(
        "SYSCALL[9,1](59) sys_execve ( 0x40529c0(/usr/bin/readlink), 0x4052a00, 0x4050ff0 )==9== Lackey, an example Valgrind tool",
    );
    let [LogItem::Syscall(call), LogItem::Banner { pid: 9 }] = &glued[..] else { panic!("{glued:?}") };
    assert_eq!((call.number, call.outcome), (59, CallOutcome::NotPrinted));
}

#[test]
fn a_signal_during_a_call_is_a_lock_reason() {
    assert_eq!(
        items("--7--   SCHED[1]:  acquired lock (async_signalhandler)"),
        [LogItem::Acquired { slot: 1, why: LockReason::Signal }]
    );
}

#[test]
fn a_bare_result_may_be_pending() {
    assert_eq!(items(" --> [async] ... "), [LogItem::BareResult(CallOutcome::Pending)]);
}

#[test]
fn an_unimplemented_call_fails_on_the_next_line() {
    let call = items("SYSCALL[3028,1](334) unimplemented (by the kernel) syscall: 334! (ni_syscall)");
    assert!(matches!(&call[..], [LogItem::Syscall(Syscall { number: 334, outcome: CallOutcome::NotPrinted, .. })]));
    assert_eq!(items(" --> [pre-fail] Failure(0x26) "), [LogItem::BareResult(CallOutcome::Done(Err(0x26)))]);
}

#[test]
fn unusual_arguments_are_parsed_or_skipped() {
    let first = |line: &str| match items(line).swap_remove(0) {
        LogItem::Syscall(call) => call.args,
        other => panic!("{line:?}: {other:?}"),
    };
    assert_eq!(
        first("SYSCALL[1,1](158) arch_prctl ( 4098, 4a27740 ) --> [pre-success] Success(0x0) "),
        [number(4098), number(0x04a2_7740)]
    );
    assert_eq!(
        first("SYSCALL[1,1](228) sys_clock_gettime( 1, 0x1ffe )[sync] --> Success(0x0) "),
        [number(1), number(0x1ffe)]
    );
    assert_eq!(first("SYSCALL[1,1](72) sys_fcntl[ARG3=='arg'] ( 3, 2, 1 )[sync] --> Success(0x0) ").len(), 3);
    assert_eq!(
        first("SYSCALL[1,1](262) sys_newfstatat ( 4, 0x49dbdd5(), 0x10 )[sync] --> Success(0x0) ")[1],
        string(0x049d_bdd5, "")
    );
    let odd = "SYSCALL[1,1](257) sys_openat ( 4294967196, 0x40(/tmp/a (b), c/d), 524288 ) --> [async] ... ";
    let symbolic = "SYSCALL[9,1](233) sys_epoll_ctl ( 7, EPOLL_CTL_DEL, 5, 0x0 )[sync] --> Success(0x0) ";
    assert_eq!(first(symbolic), [], "the trace does not depend on the arguments");
    let cut = b"SYSCALL[9,1](9) sys_mmap ( 0x0, HUGE, 1, 2, 3, 4 ) --> [pre-success] Success(0x1000) ";
    assert_eq!(item(&mut &cut[..]), Err(NotALogItem), "the trace depends on the arguments");
    // A name that contains `), ` looks like the end of the string; a name with other parentheses
    // does not.
    assert_eq!(
        first(&odd.replace("), c", ") c")),
        [number(0xffff_ff9c), string(0x40, "/tmp/a (b) c/d"), number(524_288)]
    );
}

#[test]
fn lines_of_the_preamble_are_parsed() {
    assert_eq!(
        items("==3028== Command: sort a\\ b in.txt"),
        [LogItem::Command(vec!["sort".into(), "a b".into(), "in.txt".into()])]
    );
    assert_eq!(items("==3028== Parent PID: 3023"), [LogItem::Parent { pid: 3023 }]);
    assert_eq!(items("==3028== "), [LogItem::Ignored]);
    assert_eq!(
        items("==5== Process terminating with default action of signal 15 (SIGTERM)"),
        [LogItem::Killed { signal: 15 }]
    );
}

#[test]
fn other_text_is_refused() {
    for line in ["hello", "SYSCALL[1", "SYSCALL[1,1](9) sys_mmap 3", "==x==", "#!/bin/sh", "--> Sucess(0x1)"] {
        let mut rest = line.as_bytes();
        assert_eq!(item(&mut rest), Err(NotALogItem), "{line:?}");
    }
}
