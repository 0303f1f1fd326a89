//! What calls read of their caller's memory: arrays of `struct iovec`, names, limits, nodes.

use crate::caller::CallingProcess;
use crate::request::{UserIoVecs, UserNodes};
use alloc::vec::Vec;
use pagewright_mm::space::Rlimit;
use pagewright_sync::Platform;
use pagewright_types::{Errno, NodeMask, PAGE_SIZE, VirtAddr};

/// Elements that an array of `struct iovec` may have (`UIO_MAXIOV`).
const IOVECS_MAX: u64 = 1024;
/// Bytes of a `struct iovec`, and of a `struct rlimit64`.
const PAIR: usize = 16;
/// Bytes that [`string`] reads at once.
const STRING_CHUNK: u64 = 64;

fn pair(bytes: &[u8]) -> (u64, u64) {
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let (first, second) = bytes.split_at(PAIR / 2);
    (word(first), word(second))
}

/// Reads an array of `struct iovec`, and makes an element of each address and length.
pub(crate) fn iovecs<P: Platform, C: CallingProcess<P>, T>(
    caller: &C,
    array: UserIoVecs,
    element: fn(VirtAddr, u64) -> T,
) -> Result<Vec<T>, C::Error> {
    if array.count > IOVECS_MAX {
        return Err(Errno::EINVAL.into());
    }
    let count = array.count as usize;
    let (mut bytes, mut iovecs) = (Vec::new(), Vec::new());
    if bytes.try_reserve_exact(count * PAIR).is_err() || iovecs.try_reserve_exact(count).is_err() {
        return Err(Errno::ENOMEM.into());
    }
    bytes.resize(count * PAIR, 0);
    caller.copy_from_user(array.at, &mut bytes)?;
    iovecs.extend(bytes.chunks_exact(PAIR).map(pair).map(|(base, len)| element(VirtAddr::new(base), len)));
    Ok(iovecs)
}

/// Reads `count` elements of `N` bytes of an array, from the one with the index `first` on.
pub(crate) fn array<P: Platform, C: CallingProcess<P>, T, const N: usize>(
    caller: &C,
    array: VirtAddr,
    first: u64,
    count: u64,
    element: fn([u8; N]) -> T,
) -> Result<Vec<T>, C::Error> {
    let from = array.checked_add(first * N as u64).ok_or(Errno::EFAULT)?;
    let (mut bytes, mut elements) = (Vec::new(), Vec::new());
    let count = count as usize;
    if bytes.try_reserve_exact(count * N).is_err() || elements.try_reserve_exact(count).is_err() {
        return Err(Errno::ENOMEM.into());
    }
    bytes.resize(count * N, 0);
    caller.copy_from_user(from, &mut bytes)?;
    let (words, _) = bytes.as_chunks::<N>();
    elements.extend(words.iter().map(|word| element(*word)));
    Ok(elements)
}

/// Reads a string into `to`, and returns it without the zero at its end.
///
/// Returns all of `to` if there is no zero among as many bytes. Memory behind the zero is read
/// within its page only.
pub(crate) fn string<'a, P: Platform, C: CallingProcess<P>>(
    caller: &C,
    from: VirtAddr,
    to: &'a mut [u8],
) -> Result<&'a [u8], C::Error> {
    let mut done = 0;
    while done < to.len() {
        let at = from.checked_add(done as u64).ok_or(Errno::EFAULT)?;
        let chunk = (PAGE_SIZE - at.page_offset()).min(STRING_CHUNK) as usize;
        let chunk = chunk.min(to.len() - done);
        let read = &mut to[done..done + chunk];
        caller.copy_from_user(at, read)?;
        if let Some(end) = read.iter().position(|byte| *byte == 0) {
            return Ok(&to[..done + end]);
        }
        done += chunk;
    }
    Ok(to)
}

/// Reads a `struct rlimit64`.
pub(crate) fn read_limit<P: Platform, C: CallingProcess<P>>(caller: &C, from: VirtAddr) -> Result<Rlimit, C::Error> {
    let mut bytes = [0; PAIR];
    caller.copy_from_user(from, &mut bytes)?;
    let (soft, hard) = pair(&bytes);
    Ok(Rlimit { soft, hard })
}

/// Stores a `struct rlimit64`.
pub(crate) fn write_limit<P: Platform, C: CallingProcess<P>>(
    caller: &C,
    to: VirtAddr,
    limit: Rlimit,
) -> Result<(), C::Error> {
    let mut bytes = [0; PAIR];
    bytes[..PAIR / 2].copy_from_slice(&limit.soft.to_le_bytes());
    bytes[PAIR / 2..].copy_from_slice(&limit.hard.to_le_bytes());
    caller.copy_to_user(to, &bytes)
}

/// Bits and bytes of a word of a bitmap of nodes.
const WORD_BITS: u64 = NodeMask::MAX as u64;
const WORD: u64 = WORD_BITS / 8;

/// Reads a bitmap of nodes (`get_nodes`).
///
/// As in Linux, bits for nodes that no machine can have must be 0. They are read a word at a time
/// from the end, whole words even where the bitmap ends within one.
pub(crate) fn read_nodes<P: Platform, C: CallingProcess<P>>(
    caller: &C,
    nodes: UserNodes,
) -> Result<NodeMask, C::Error> {
    let mut bits = nodes.max.wrapping_sub(1);
    if bits == 0 || nodes.at == VirtAddr::ZERO {
        return Ok(NodeMask::EMPTY);
    }
    if bits > PAGE_SIZE * 8 {
        return Err(Errno::EINVAL.into());
    }
    let word = |index: u64| {
        let mut bytes = [0; WORD as usize];
        caller.copy_from_user(nodes.at.checked_add(index * WORD).ok_or(Errno::EFAULT)?, &mut bytes)?;
        Ok::<_, C::Error>(u64::from_le_bytes(bytes))
    };
    while bits > WORD_BITS {
        if word((bits - 1) / WORD_BITS)? != 0 {
            return Err(Errno::EINVAL.into());
        }
        bits = (bits - WORD_BITS).max(WORD_BITS);
    }
    Ok(NodeMask::from_word(word(0)? & u64::MAX >> (WORD_BITS - bits)))
}

/// Stores a bitmap of nodes, and zeroes behind it (`copy_nodes_to_user`).
pub(crate) fn write_nodes<P: Platform, C: CallingProcess<P>>(
    caller: &C,
    to: UserNodes,
    nodes: NodeMask,
) -> Result<(), C::Error> {
    let bytes = (to.max - 1).div_ceil(WORD_BITS) * WORD;
    if bytes > PAGE_SIZE {
        return Err(Errno::EINVAL.into());
    }
    // The zeroes come first, as in Linux.
    for at in (WORD..bytes).step_by(WORD as usize) {
        caller.copy_to_user(to.at.checked_add(at).ok_or(Errno::EFAULT)?, &[0; WORD as usize])?;
    }
    caller.copy_to_user(to.at, &nodes.word().to_le_bytes()[..bytes.min(WORD) as usize])
}
