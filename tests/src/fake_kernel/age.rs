//! What kernels know, by the first version that does.
//!
//! Every number is of `include/uapi/linux/bpf.h` or `btf.h` of the version named. Tables of numbers that grow at their end
//! say for each version the first number that it does *not* know.

use super::Version;

const fn v(major: u16, minor: u16) -> Version {
    Version { major, minor }
}

/// By version, ascending: the first number that is not known.
type Growth = &'static [(Version, u32)];

/// What a table says for a version: that of the newest row which is not younger.
pub(super) fn at(table: Growth, version: Version) -> u32 {
    table.iter().take_while(|(since, _)| *since <= version).last().map_or(0, |(_, end)| *end)
}

/// `enum bpf_cmd`.
pub(super) const COMMANDS: Growth = &[
    (v(3, 19), 6),
    (v(4, 4), 8),
    (v(4, 10), 10),
    (v(4, 12), 11),
    (v(4, 13), 16),
    (v(4, 15), 17),
    (v(4, 17), 18),
    (v(4, 18), 21),
    (v(4, 20), 22),
    (v(5, 2), 23),
    (v(5, 4), 24),
    (v(5, 6), 28),
    (v(5, 7), 30),
    (v(5, 8), 34),
    (v(5, 9), 35),
    (v(5, 10), 36),
    (v(6, 9), 37),
    (v(6, 17), u32::MAX),
];

/// `sizeof(union bpf_attr)`: what lies beyond must be zero, else E2BIG.
pub(super) const ATTR_SIZE: Growth = &[
    (v(3, 19), 48),
    (v(4, 15), 64),
    (v(4, 16), 72),
    (v(5, 0), 112),
    (v(5, 6), 120),
    (v(5, 14), 128),
    (v(5, 17), 144),
    (v(6, 9), 152),
    (v(6, 14), u32::MAX),
];

/// The end of the fields of a command: what lies beyond within the union must be zero, else EINVAL.
pub(super) const FIELDS_END: &[(u32, Growth)] = &[
    // BPF_MAP_CREATE: flags, inner map, NUMA node, name, interface, BTF, vmlinux type, extra, module BTF and token.
    (
        0,
        &[
            (v(3, 19), 16),
            (v(4, 6), 20),
            (v(4, 12), 24),
            (v(4, 14), 28),
            (v(4, 15), 44),
            (v(4, 16), 48),
            (v(4, 18), 60),
            (v(5, 6), 64),
            (v(5, 16), 72),
            (v(6, 9), 80),
            (v(6, 18), u32::MAX),
        ],
    ),
    // BPF_PROG_LOAD: version, flags, name, interface, attach type, BTF, target, program, array of descriptors, relocations,
    // log size, token.
    (
        5,
        &[
            (v(3, 19), 40),
            (v(4, 1), 44),
            (v(4, 12), 48),
            (v(4, 15), 64),
            (v(4, 16), 68),
            (v(4, 17), 72),
            (v(5, 0), 108),
            (v(5, 5), 112),
            (v(5, 6), 116),
            (v(5, 14), 128),
            (v(5, 17), 140),
            (v(6, 4), 144),
            (v(6, 9), 148),
            (v(6, 14), u32::MAX),
        ],
    ),
    // BPF_BTF_LOAD: log size, flags and token.
    (18, &[(v(4, 18), 28), (v(6, 4), 32), (v(6, 9), u32::MAX)]),
    // BPF_LINK_CREATE: iterators, cookies, multi-kprobes, multi-uprobes.
    (28, &[(v(5, 7), 16), (v(5, 9), 28), (v(5, 18), 48), (v(6, 6), u32::MAX)]),
];

/// `sizeof(struct bpf_map_info)`.
pub(super) const MAP_INFO: Growth =
    &[(v(4, 13), 24), (v(4, 15), 40), (v(4, 16), 64), (v(4, 18), 80), (v(5, 16), 88), (v(6, 18), u32::MAX)];

/// `sizeof(struct bpf_prog_info)`.
pub(super) const PROG_INFO: Growth = &[
    (v(4, 13), 40),
    (v(4, 15), 80),
    (v(4, 16), 104),
    (v(4, 18), 128),
    (v(5, 0), 192),
    (v(5, 1), 208),
    (v(5, 12), 216),
    (v(5, 16), 224),
    (v(6, 0), u32::MAX),
];

/// `sizeof(struct bpf_btf_info)`: names since 5.11.
pub(super) const BTF_INFO: Growth = &[(v(4, 18), 16), (v(5, 11), u32::MAX)];

/// `enum bpf_prog_type`.
pub(super) const PROG_TYPES: Growth = &[
    (v(3, 19), 2),
    (v(4, 1), 5),
    (v(4, 7), 6),
    (v(4, 8), 7),
    (v(4, 9), 8),
    (v(4, 10), 13),
    (v(4, 13), 14),
    (v(4, 14), 15),
    (v(4, 15), 16),
    (v(4, 17), 19),
    (v(4, 18), 21),
    (v(4, 19), 22),
    (v(4, 20), 23),
    (v(5, 2), 25),
    (v(5, 3), 26),
    (v(5, 5), 27),
    (v(5, 6), 29),
    (v(5, 7), 30),
    (v(5, 9), 31),
    (v(5, 14), 32),
    (v(6, 4), u32::MAX),
];

/// `enum bpf_map_type`.
pub(super) const MAP_TYPES: Growth = &[
    (v(3, 19), 3),
    (v(4, 2), 4),
    (v(4, 3), 5),
    (v(4, 6), 8),
    (v(4, 8), 9),
    (v(4, 10), 11),
    (v(4, 11), 12),
    (v(4, 12), 14),
    (v(4, 14), 16),
    (v(4, 15), 17),
    (v(4, 18), 19),
    (v(4, 19), 21),
    (v(4, 20), 24),
    (v(5, 2), 25),
    (v(5, 4), 26),
    (v(5, 6), 27),
    (v(5, 8), 28),
    (v(5, 10), 29),
    (v(5, 11), 30),
    (v(5, 16), 31),
    (v(6, 1), 32),
    (v(6, 2), 33),
    (v(6, 9), 34),
    (v(6, 19), u32::MAX),
];

/// `enum bpf_attach_type`.
pub(super) const ATTACH_TYPES: Growth = &[
    (v(4, 10), 3),
    (v(4, 13), 4),
    (v(4, 14), 6),
    (v(4, 15), 7),
    (v(4, 17), 14),
    (v(4, 18), 17),
    (v(4, 20), 18),
    (v(5, 2), 21),
    (v(5, 3), 23),
    (v(5, 5), 26),
    (v(5, 7), 28),
    (v(5, 8), 34),
    (v(5, 9), 38),
    (v(5, 13), 39),
    (v(5, 14), 41),
    (v(5, 15), 42),
    (v(5, 18), 43),
    (v(6, 0), 44),
    (v(6, 4), 46),
    (v(6, 6), 49),
    (v(6, 7), 56),
    (v(6, 10), 57),
    (v(6, 13), 58),
    (v(7, 0), u32::MAX),
];

/// `enum bpf_func_id`: helpers.
pub(super) const HELPERS: Growth = &[
    (v(3, 19), 4),
    (v(4, 1), 12),
    (v(4, 2), 17),
    (v(4, 3), 23),
    (v(4, 4), 26),
    (v(4, 6), 29),
    (v(4, 8), 37),
    (v(4, 9), 42),
    (v(4, 10), 45),
    (v(4, 11), 46),
    (v(4, 12), 48),
    (v(4, 13), 51),
    (v(4, 14), 54),
    (v(4, 15), 58),
    (v(4, 16), 60),
    (v(4, 17), 65),
    (v(4, 18), 81),
    (v(4, 19), 84),
    (v(4, 20), 91),
    (v(5, 0), 93),
    (v(5, 1), 99),
    (v(5, 2), 109),
    (v(5, 3), 110),
    (v(5, 4), 111),
    (v(5, 5), 116),
    (v(5, 6), 119),
    (v(5, 7), 125),
    (v(5, 8), 136),
    (v(5, 9), 142),
    (v(5, 10), 156),
    (v(5, 11), 163),
    (v(5, 12), 164),
    (v(5, 13), 166),
    (v(5, 14), 169),
    (v(5, 15), 176),
    (v(5, 16), 180),
    (v(5, 17), 186),
    (v(5, 18), 194),
    (v(5, 19), 204),
    (v(6, 1), 210),
    (v(6, 2), u32::MAX),
];

/// Kinds of BTF types.
pub(super) const BTF_KINDS: Growth = &[
    (v(4, 18), 12),
    (v(5, 0), 14),
    (v(5, 2), 16),
    (v(5, 13), 17),
    (v(5, 16), 18),
    (v(5, 17), 19),
    (v(6, 0), u32::MAX),
];

/// BPF_F_* of maps, the first bit that is not known.
pub(super) const MAP_FLAG_BITS: Growth = &[
    (v(4, 6), 1),
    (v(4, 10), 2),
    (v(4, 14), 3),
    (v(4, 15), 5),
    (v(4, 18), 6),
    (v(5, 0), 7),
    (v(5, 2), 9),
    (v(5, 4), 10),
    (v(5, 5), 11),
    (v(5, 10), 13),
    (v(6, 7), 14),
    (v(6, 9), 32),
];

/// BPF_F_* of programs, the first bit that is not known.
pub(super) const PROG_FLAG_BITS: Growth = &[
    (v(4, 12), 1),
    (v(5, 0), 2),
    (v(5, 3), 3),
    (v(5, 4), 4),
    (v(5, 10), 5),
    (v(5, 18), 6),
    (v(6, 3), 7),
    (v(6, 8), 8),
    (v(6, 9), 32),
];

/// The `src_reg` of LD_IMM64: a map, its value, a variable of the kernel, a function, a map by index.
pub(super) const LD_IMM64_FORMS: Growth =
    &[(v(3, 19), 2), (v(5, 2), 3), (v(5, 10), 4), (v(5, 13), 5), (v(5, 14), u32::MAX)];

/// The `src_reg` of a call: a helper, a subprogram, a kernel function.
pub(super) const CALL_FORMS: Growth = &[(v(3, 19), 1), (v(4, 16), 2), (v(5, 13), u32::MAX)];

/// Names may have dots.
pub(super) const DOTS: Version = v(5, 2);
/// The version that a kprobe program states is no longer compared.
pub(super) const ANY_KERN_VERSION: Version = v(5, 0);
/// Programs may be longer than 4096 instructions.
pub(super) const LONG_PROGRAMS: Version = v(5, 2);
/// Bounded loops.
pub(super) const LOOPS: Version = v(5, 3);
/// Jumps that compare 32 bits.
pub(super) const JMP32: Version = v(5, 1);
/// Atomic instructions other than an addition.
pub(super) const ATOMICS: Version = v(5, 12);
/// Instructions of `-mcpu=v4`.
pub(super) const CPU_V4: Version = v(6, 6);
/// Functions of global linkage in BTF, and verified alone.
pub(super) const GLOBAL_FUNC: Version = v(5, 6);
/// Enumerations that say their sign by kind_flag.
pub(super) const SIGNED_ENUM: Version = v(6, 0);
/// Structs that say bitfields by kind_flag.
pub(super) const BITFIELD_FLAG: Version = v(5, 0);
/// Sections whose name starts with `?`.
pub(super) const QMARK: Version = v(6, 9);
/// Keys and values of hash maps may have types.
pub(super) const HASH_BTF: Version = v(4, 19);
/// `arg:ctx` tells the verifier which argument is the context.
pub(super) const ARG_CTX: Version = v(6, 8);
/// BTF objects have names.
pub(super) const BTF_NAMES: Version = v(5, 11);
/// /sys/kernel/btf/vmlinux.
pub(super) const KERNEL_BTF: Version = v(5, 4);
