//! The system call numbers of arm64.
//!
//! The importer knows calls by their numbers on x86-64. Their arguments are the same.

/// The numbers on arm64 (`asm-generic/unistd.h`) and on x86-64 of the calls that the importer uses.
#[rustfmt::skip]
const NUMBERS: &[(u32, u32)] = &[
    (8, 191), (9, 192), (17, 79), (21, 233), (22, 281), (23, 32), (24, 292), (25, 72), (34, 258), (35, 263),
    (38, 264), (43, 137), (44, 138), (48, 269), (49, 80), (50, 81), (53, 268), (56, 257), (57, 3), (59, 293),
    (61, 217), (63, 0), (64, 1), (65, 19), (66, 20), (67, 17), (68, 18), (72, 270), (73, 271), (78, 267),
    (79, 262), (80, 5), (88, 280), (93, 60), (94, 231), (95, 247), (98, 202), (101, 35), (113, 228),
    (114, 229), (115, 230), (123, 204), (132, 131), (134, 13), (135, 14), (153, 100), (160, 63), (163, 97),
    (165, 98), (169, 96), (179, 99), (196, 30), (197, 67), (199, 53), (200, 49), (203, 42), (206, 44),
    (207, 45), (211, 46), (212, 47), (214, 12), (215, 11), (216, 25), (220, 56), (221, 59), (222, 9),
    (226, 10), (227, 26), (228, 149), (229, 150), (230, 151), (231, 152), (232, 27), (233, 28), (234, 216),
    (235, 237), (236, 239), (237, 238), (238, 256), (239, 279), (242, 288), (260, 61), (261, 302), (276, 316),
    (278, 318), (279, 319), (282, 323), (283, 324), (284, 325), (288, 329), (291, 332),
];
/// Numbers from here on are the same on both.
const COMMON: u32 = 424;
/// A number that no call has on x86-64.
const UNKNOWN: u32 = 511;

/// The number on x86-64 of a call of arm64.
pub(super) fn x86_64_number(number: u32) -> u32 {
    match NUMBERS.binary_search_by_key(&number, |&(arm, _)| arm) {
        Ok(at) => NUMBERS[at].1,
        Err(_) if number >= COMMON => number,
        Err(_) => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::nr;

    #[test]
    fn numbers_are_sorted_and_those_of_x86_64() {
        assert!(NUMBERS.is_sorted());
        let seen = [222, 221, 220, 94, 435, 1].map(x86_64_number);
        assert_eq!(seen, [nr::MMAP, nr::EXECVE, nr::CLONE, nr::EXIT_GROUP, nr::CLONE3, UNKNOWN]);
    }
}
