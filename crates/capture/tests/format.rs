//! The trace format: the reader returns what was written, and refuses any other file.

use pagewright_types::IsaKind;
use std::io::Cursor;

use pagewright_capture::trace::{
    AccessOrigin, AccessRun, AccessStream, AddressLayout, CapturedFile, Compression, Corruption, ExecImage, FileId,
    ImageBacking, ImageMapping, MappingSource, MemCall, MemOp, PageNo, Pid, Prot, RawErrno, RawMapFlags, TaskEvent,
    Tid, TraceError, TraceEvent, TraceFile, TraceHeader, TraceReader, TraceWriter, UserAddr,
};
use proptest::prelude::*;

fn header() -> TraceHeader {
    TraceHeader {
        command: vec!["sort".into(), "in.txt".into()],
        tool: "test".into(),
        isa: IsaKind::X86_64,
        page_size: 4096,
        mappings: MappingSource::SystemCalls,
        layout: AddressLayout::Linux,
        native: None,
    }
}

fn write(events: &[TraceEvent]) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), &header(), Compression::Fast).unwrap();
    for event in events {
        writer.push(event).unwrap();
    }
    writer.finish().unwrap().1
}

fn read(bytes: &[u8]) -> Result<Vec<TraceEvent>, TraceError> {
    let mut reader = TraceReader::new(Cursor::new(bytes), "test.pwt")?;
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while reader.next_batch(&mut batch)? {
        all.append(&mut batch);
    }
    assert_eq!(reader.summary().unwrap().events, all.len() as u64);
    Ok(all)
}

fn run() -> impl Strategy<Value = AccessRun> {
    // Mostly few pages and small counts, so that runs repeat as in programs.
    let page = prop_oneof![4 => 0x7fff0u64..0x7fff8, 1 => any::<u64>()];
    let count = prop_oneof![4 => 1u32..4, 1 => 1..=u32::MAX];
    (page, count.clone(), prop_oneof![Just(0), count], any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(page, reads, writes, data, kernel, write_first)| AccessRun {
            page: PageNo(page),
            reads,
            writes,
            stream: if data { AccessStream::Data } else { AccessStream::Fetch },
            origin: if kernel { AccessOrigin::Kernel } else { AccessOrigin::User },
            write_first,
        },
    )
}

fn mem_op() -> impl Strategy<Value = MemOp> {
    let addr = any::<u64>().prop_map(UserAddr);
    prop_oneof![
        (addr.clone(), any::<u64>(), any::<u32>(), any::<u32>(), any::<Option<u32>>(), any::<u64>()).prop_map(
            |(addr, len, prot, flags, file, offset)| MemOp::Mmap {
                addr,
                len,
                prot: Prot(prot),
                flags: RawMapFlags(flags),
                file: file.map(FileId),
                offset
            }
        ),
        (addr.clone(), any::<u64>()).prop_map(|(addr, len)| MemOp::Munmap { addr, len }),
        (addr.clone(), any::<u64>(), any::<u64>(), any::<u32>(), addr.clone()).prop_map(
            |(addr, old_len, new_len, flags, new_addr)| MemOp::Mremap { addr, old_len, new_len, flags, new_addr }
        ),
        addr.prop_map(|addr| MemOp::Brk { addr }),
        Just(MemOp::Munlockall {}),
        (any::<u32>(), any::<Vec<u64>>()).prop_map(|(number, args)| MemOp::Other { number, args }),
    ]
}

fn task() -> impl Strategy<Value = TaskEvent> {
    let mapping =
        (any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(start, len, prot, file)| ImageMapping {
            start: UserAddr(start),
            len,
            prot: Prot(prot),
            backing: if prot % 2 == 0 {
                ImageBacking::File { file: FileId(file), offset: len }
            } else {
                ImageBacking::Stack {}
            },
        });
    prop_oneof![
        (any::<u32>(), any::<u32>()).prop_map(|(pid, tid)| TaskEvent::Begin { pid: Pid(pid), tid: Tid(tid) }),
        (any::<u32>(), any::<u32>(), any::<bool>()).prop_map(|(child, tid, vfork)| TaskEvent::Fork {
            child: Pid(child),
            tid: Tid(tid),
            vfork
        }),
        (any::<Vec<String>>(), proptest::collection::vec(mapping, 0..4), any::<u64>()).prop_map(
            |(args, mappings, brk)| TaskEvent::Exec {
                image: ExecImage {
                    executable: FileId(1),
                    args,
                    mappings,
                    brk: UserAddr(brk),
                    stack_top: UserAddr(0),
                    stack_limit: 8 << 20
                }
            }
        ),
        Just(TaskEvent::ExitThread {}),
    ]
}

fn event() -> impl Strategy<Value = TraceEvent> {
    prop_oneof![
        20 => run().prop_map(TraceEvent::Run),
        1 => (any::<u32>(), any::<u32>()).prop_map(|(pid, tid)| TraceEvent::Switch { pid: Pid(pid), tid: Tid(tid) }),
        1 => task().prop_map(|task| TraceEvent::Task(Box::new(task))),
        1 => (mem_op(), any::<Result<u64, u16>>())
            .prop_map(|(op, result)| TraceEvent::Call(Box::new(MemCall { op, result: result.map_err(RawErrno) }))),
        1 => (any::<u32>(), any::<String>(), any::<Option<u64>>())
            .prop_map(|(id, path, size)| TraceEvent::File(Box::new(CapturedFile { id: FileId(id), path, size }))),
    ]
}

fn some_events() -> Vec<TraceEvent> {
    let run = |page| AccessRun {
        page: PageNo(page),
        reads: 1,
        writes: 0,
        stream: AccessStream::Data,
        origin: AccessOrigin::User,
        write_first: false,
    };
    vec![
        TraceEvent::Task(Box::new(TaskEvent::Begin { pid: Pid(1), tid: Tid(1) })),
        TraceEvent::Run(run(5)),
        TraceEvent::Run(run(6)),
        TraceEvent::Run(run(5)),
        TraceEvent::Call(Box::new(MemCall { op: MemOp::Brk { addr: UserAddr(0) }, result: Ok(0x5555_5555_6000) })),
        TraceEvent::Task(Box::new(TaskEvent::ExitProcess { status: 0 })),
    ]
}

proptest! {
    #[test]
    fn the_reader_returns_the_written_events(events in proptest::collection::vec(event(), 0..600)) {
        prop_assert_eq!(read(&write(&events)).unwrap(), events);
    }

    #[test]
    fn a_change_of_any_byte_is_an_error(events in proptest::collection::vec(event(), 1..60), at in any::<prop::sample::Index>(), flip in 1u8..) {
        let mut bytes = write(&events);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        prop_assert!(read(&bytes).is_err(), "the change of byte {at} is no error");
    }

    #[test]
    fn random_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(read(&bytes).is_err());
    }
}

#[test]
fn a_trace_of_several_blocks_is_read_back() {
    // More distinct runs than symbols, and more events than a block has: both close a block.
    let run = |n: u64| AccessRun {
        page: PageNo(n),
        reads: 1,
        writes: 0,
        stream: AccessStream::Data,
        origin: AccessOrigin::User,
        write_first: false,
    };
    let events: Vec<TraceEvent> = (0..70_000)
        .map(|n| TraceEvent::Run(run(n)))
        .chain((0..1_100_000).map(|n| TraceEvent::Run(run(n % 7))))
        .collect();
    let back = read(&write(&events)).unwrap();
    assert!(back == events, "the events read are not those written");
}

#[test]
fn truncation_at_every_byte_is_an_error() {
    let bytes = write(&some_events());
    for len in 0..bytes.len() {
        let error = read(&bytes[..len]).expect_err("a truncated trace is read without an error");
        match (len, &error) {
            (0, TraceError::Empty { .. }) => {}
            (1.., TraceError::Truncated { offset, .. }) => assert_eq!(*offset, len as u64, "{error}"),
            _ => panic!("cut at {len}: {error}"),
        }
    }
    assert!(read(&bytes).is_ok());
}

#[test]
fn the_error_says_why_a_file_is_not_a_trace() {
    let lackey = read(b"==123== Lackey, an example Valgrind tool\n").unwrap_err();
    assert!(matches!(lackey, TraceError::LackeyLog { .. }), "{lackey}");
    let bare = read(b" L 1ffefff000,8\n").unwrap_err();
    assert!(matches!(bare, TraceError::LackeyLog { .. }), "{bare}");
    let foreign = read(b"\x7fELF\x02\x01\x01\0\0\0").unwrap_err();
    assert_eq!(foreign.to_string(), "test.pwt: not a Pagewright trace");
    let mut newer = write(&some_events());
    newer[8] = 9;
    assert!(matches!(read(&newer), Err(TraceError::Version { found: 9, .. })));
    let mut long = write(&some_events());
    let len = long.len() as u64;
    long.push(0);
    assert!(matches!(read(&long), Err(TraceError::Trailing { offset, .. }) if offset == len));
}

#[test]
fn the_error_of_damage_names_block_and_byte() {
    let mut bytes = write(&some_events());
    let end = bytes.len() - 1;
    bytes[end] ^= 1;
    let error = read(&bytes).unwrap_err();
    assert!(matches!(error, TraceError::Corrupt { block: 1, what: Corruption::Checksum { .. }, .. }), "{error}");
    assert!(error.to_string().starts_with("test.pwt: damaged at byte "), "{error}");
}

#[test]
fn a_trace_file_appears_complete_or_not_at_all() {
    use std::io::Write as _;
    let dir = std::env::temp_dir().join(format!("pagewright-trace-file-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("a.pwt");
    let mut dropped = TraceFile::create(&path).unwrap();
    dropped.write_all(b"half").unwrap();
    drop(dropped);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "a dropped file leaves nothing");
    let mut kept = TraceFile::create(&path).unwrap();
    kept.write_all(b"whole").unwrap();
    assert!(!path.exists());
    kept.commit().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"whole");
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
    // A link is not replaced but its target is, and a pipe is written to.
    let link = dir.join("link.pwt");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let mut linked = TraceFile::create(&link).unwrap();
    linked.write_all(b"new").unwrap();
    linked.commit().unwrap();
    assert!(link.is_symlink() && std::fs::read(&path).unwrap() == b"new");
    let (mut reader, writer) = std::io::pipe().unwrap();
    let pipe = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
    let mut piped = TraceFile::create(pipe).unwrap();
    piped.write_all(b"as it comes").unwrap();
    piped.commit().unwrap();
    drop(writer);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
    assert_eq!(text, "as it comes");
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 2, "no temporary file is left");
    std::fs::remove_dir_all(&dir).unwrap();
}
