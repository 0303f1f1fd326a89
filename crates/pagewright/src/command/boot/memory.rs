//! The least memory with which a kernel starts, from its image.
//!
//! [`image_end`] reads from the image where it ends in memory. [`least_memory`] places the
//! initramfs and the device tree as QEMU does, and the heap as the kernel does
//! (`kernel/hal/src/boot.rs`). At least 1 MiB then remains below the image, in which a static
//! program that does nothing runs on 1 to 64 CPUs. `cargo xtask boot` boots with exactly the least
//! memory.
//!
//! Not guaranteed: that the least memory suffices for a larger program.

use object::Endianness;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use pagewright_types::{IsaKind, PAGE_SIZE};

/// The unit of QEMU's memory sizes.
pub(super) const MIB: u64 = 1 << 20;

/// Initial size of the kernel's heap without the records of frames.
const HEAP_MIN: u64 = 4 * MIB;
/// Bytes of the heap for the record of each frame.
const BYTES_PER_FRAME: u64 = 64;
/// Alignment of the start of the heap, and the unit of its size.
const HEAP_ALIGN: u64 = 2 * MIB;

/// The end of memory that QEMU keeps free of an initramfs on x86-64, for firmware's tables.
const ACPI_TABLES: u64 = 160 << 10;
/// Offset of an arm64 image in memory.
const IMAGE_OFFSET: u64 = 2 * MIB;
/// QEMU places the initramfs of an arm64 machine at half of memory, or here if that is lower.
const INITRAMFS_MAX: u64 = 128 * MIB;
/// Size of the device tree that QEMU makes.
const DEVICE_TREE: u64 = MIB;
/// Alignment of the device tree.
const DEVICE_TREE_ALIGN: u64 = 2 * MIB;
/// Memory that is ample for any kernel, in addition to twice the image and the initramfs.
const AMPLE: u64 = 64 * MIB;

/// Where a kernel ends in memory, in bytes from the start of memory.
///
/// Our kernel is an ELF file for x86-64, and a flat image with Linux's header for arm64. Returns
/// `None` for a file in another form, or one that does not end in the first 4 GiB.
pub(super) fn image_end(isa: IsaKind, image: &[u8]) -> Option<u64> {
    let end = match isa {
        IsaKind::X86_64 => elf_end(image)?,
        IsaKind::Aarch64 => IMAGE_OFFSET.checked_add(flat_size(image)?)?,
    };
    (end <= 1 << 32).then_some(end)
}

/// The highest physical address of an ELF file's segments.
fn elf_end(image: &[u8]) -> Option<u64> {
    let header = FileHeader64::<Endianness>::parse(image).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, image).ok()?.iter();
    let loaded = segments.filter(|segment| segment.p_type(endian) == PT_LOAD);
    let ends = loaded.map(|segment| segment.p_paddr(endian).saturating_add(segment.p_memsz(endian)));
    Some(ends.max()?.next_multiple_of(PAGE_SIZE))
}

/// The size in memory that the header of a flat image gives (Linux's `booting.rst` for arm64).
fn flat_size(image: &[u8]) -> Option<u64> {
    const SIZE: usize = 16;
    const MAGIC: usize = 56;
    let size = image.get(SIZE..)?.first_chunk()?;
    image.get(MAGIC..)?.starts_with(b"ARM\x64").then_some(u64::from_le_bytes(*size))
}

/// The least memory with which a kernel that ends at `image_end` starts, in MiB.
///
/// `packed` is the size of the initramfs. More memory moves the initramfs and the device tree, and
/// may therefore leave less in one piece. All memory from the least on suffices.
pub(super) fn least_memory(isa: IsaKind, image_end: u64, packed: u64) -> u64 {
    let ample = (2 * (image_end + packed) + AMPLE).div_ceil(MIB);
    (1..=ample).rev().take_while(|mebibytes| suffices(isa, image_end, packed, mebibytes * MIB)).last().unwrap_or(ample)
}

/// Whether a kernel starts with `memory` bytes.
fn suffices(isa: IsaKind, image_end: u64, packed: u64, memory: u64) -> bool {
    match isa {
        IsaKind::X86_64 => {
            let initramfs = memory.saturating_sub(ACPI_TABLES + packed) & !(PAGE_SIZE - 1);
            has_room_for_heap(image_end, initramfs, memory)
        }
        IsaKind::Aarch64 => {
            let initramfs = (memory / 2).min(INITRAMFS_MAX).max(image_end).next_multiple_of(PAGE_SIZE);
            let tree_end = (initramfs + packed).next_multiple_of(DEVICE_TREE_ALIGN) + DEVICE_TREE;
            let parts = [(image_end, initramfs), (tree_end, memory)];
            tree_end <= memory && parts.into_iter().any(|(start, end)| has_room_for_heap(start, end, memory))
        }
    }
}

/// Whether the kernel finds its heap between `start` and `end`, in a machine of `memory` bytes.
fn has_room_for_heap(start: u64, end: u64, memory: u64) -> bool {
    let heap = (HEAP_MIN + memory / PAGE_SIZE * BYTES_PER_FRAME).next_multiple_of(HEAP_ALIGN);
    end.saturating_sub(start) >= heap + HEAP_ALIGN
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISAS: [IsaKind; 2] = [IsaKind::X86_64, IsaKind::Aarch64];
    /// An initramfs with a static program that does nothing.
    const SMALL: u64 = 764 << 10;

    /// A flat image that takes `bytes` of memory.
    fn flat(bytes: u64) -> Vec<u8> {
        let mut image = vec![0; 64];
        image[16..24].copy_from_slice(&bytes.to_le_bytes());
        image[56..60].copy_from_slice(b"ARM\x64");
        image
    }

    /// An ELF file with segments of this type, address and size in memory, and none in the file.
    fn elf(segments: &[(u32, u64, u64)]) -> Vec<u8> {
        let mut image = b"\x7fELF\x02\x01\x01".to_vec();
        image.resize(64, 0);
        (image[16], image[18], image[20]) = (2, 62, 1);
        (image[32], image[52], image[54], image[56]) = (64, 64, 56, segments.len() as u8);
        for (kind, address, bytes) in segments {
            let mut header = [0; 56];
            header[..4].copy_from_slice(&kind.to_le_bytes());
            header[24..32].copy_from_slice(&address.to_le_bytes());
            header[40..48].copy_from_slice(&bytes.to_le_bytes());
            image.extend(header);
        }
        image
    }

    #[test]
    fn an_image_ends_where_its_header_says() {
        let elf = elf(&[(1, 0x20_0000, 0x1234), (1, 0x40_0000, 0x2_d8a0), (4, 0x80_0000, 0x18)]);
        assert_eq!(image_end(IsaKind::X86_64, &elf), Some(0x42_e000), "the note is not loaded");
        assert_eq!(image_end(IsaKind::Aarch64, &flat(0x1b_e000)), Some(0x3b_e000), "the image is at 2 MiB");
        for isa in ISAS {
            assert_eq!(image_end(isa, b"no kernel"), None);
        }
        assert_eq!(image_end(IsaKind::Aarch64, &elf), None);
        assert_eq!(image_end(IsaKind::X86_64, &flat(0x1b_e000)), None);
        assert_eq!(image_end(IsaKind::Aarch64, &flat(u64::MAX)), None, "a size that no machine has");
    }

    #[test]
    fn the_least_memory_grows_with_the_image_and_the_initramfs() {
        for isa in ISAS {
            let least = |end: u64, packed| least_memory(isa, end * MIB, packed);
            for end in 3..40 {
                assert!(least(end + 1, SMALL) >= least(end, SMALL), "{isa}, {end} MiB");
            }
            assert!(least(40, SMALL) >= least(4, SMALL) + 30, "{isa}");
            assert!(least(4, SMALL + 60 * MIB) >= least(4, SMALL) + 60, "{isa}");
        }
    }

    /// The device tree of an arm64 machine moves by 2 MiB, so a MiB more may be too little again.
    #[test]
    fn all_memory_from_the_least_on_suffices() {
        for isa in ISAS {
            for kib in (0..4096).step_by(60) {
                let (end, packed) = (3900 << 10, SMALL + (kib << 10));
                let least = least_memory(isa, end, packed);
                assert!(!suffices(isa, end, packed, (least - 1) * MIB), "{isa}, {kib} KiB more");
                for mebibytes in least..2048 {
                    assert!(suffices(isa, end, packed, mebibytes * MIB), "{isa}, {kib} KiB more, {mebibytes} MiB");
                }
            }
        }
    }
}
