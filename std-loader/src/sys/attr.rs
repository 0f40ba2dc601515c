//! The argument blocks of bpf(2) and perf_event_open(2), one struct per family of commands.
//!
//! `union bpf_attr` of uapi/linux/bpf.h is a union only in C: each command reads its own struct from the start of the
//! block and the kernel takes any length, provided that what it does not know is zero. So each family is a struct of
//! its own here, with its padding written out: zerocopy's `IntoBytes` refuses a struct with hidden padding, and the
//! asserts at the end hold sizes and offsets to the kernel's. Pointers are `u64` on every host, as in the uapi.
//!
//! All numbers are in the host's byte order, as the running kernel's are.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// All zero: what the kernel takes as "not given".
pub(crate) fn zeroed<T: FromZeros>() -> T {
    T::new_zeroed()
}

macro_rules! attrs {
    ($($(#[$meta:meta])* $name:ident { $($(#[$fmeta:meta])* $field:ident: $ty:ty,)* })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $($(#[$fmeta])* pub(crate) $field: $ty,)* }
    )*};
}

attrs! {
    /// BPF_MAP_CREATE.
    MapCreate {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        map_flags: u32,
        inner_map_fd: u32,
        numa_node: u32,
        map_name: [u8; 16],
        map_ifindex: u32,
        btf_fd: u32,
        btf_key_type_id: u32,
        btf_value_type_id: u32,
        btf_vmlinux_value_type_id: u32,
        map_extra: u64,
        value_type_btf_obj_fd: i32,
        map_token_fd: i32,
    }

    /// BPF_MAP_*_ELEM, BPF_MAP_GET_NEXT_KEY and BPF_MAP_FREEZE (`map_fd` alone).
    MapElem {
        map_fd: u32,
        pad: u32,
        key: u64,
        /// The value, or the next key.
        value: u64,
        flags: u64,
    }

    /// BPF_PROG_LOAD.
    ProgLoad {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log_buf: u64,
        kern_version: u32,
        prog_flags: u32,
        prog_name: [u8; 16],
        prog_ifindex: u32,
        expected_attach_type: u32,
        prog_btf_fd: u32,
        func_info_rec_size: u32,
        func_info: u64,
        func_info_cnt: u32,
        line_info_rec_size: u32,
        line_info: u64,
        line_info_cnt: u32,
        attach_btf_id: u32,
        /// attach_prog_fd or attach_btf_obj_fd: one union in the uapi.
        attach_fd: u32,
        core_relo_cnt: u32,
        fd_array: u64,
        core_relos: u64,
        core_relo_rec_size: u32,
        /// Written by kernels from 6.4 on: the log's whole size, its NUL included.
        log_true_size: u32,
        prog_token_fd: i32,
        fd_array_cnt: u32,
    }

    /// BPF_OBJ_PIN, BPF_OBJ_GET.
    Obj {
        pathname: u64,
        bpf_fd: u32,
        file_flags: u32,
        path_fd: i32,
        pad: u32,
    }

    /// BPF_PROG_ATTACH, BPF_PROG_DETACH.
    ProgAttach {
        target_fd: u32,
        attach_bpf_fd: u32,
        attach_type: u32,
        attach_flags: u32,
        replace_bpf_fd: u32,
        relative_fd: u32,
        expected_revision: u64,
    }

    /// BPF_PROG_TEST_RUN.
    TestRun {
        prog_fd: u32,
        retval: u32,
        data_size_in: u32,
        data_size_out: u32,
        data_in: u64,
        data_out: u64,
        repeat: u32,
        duration: u32,
        ctx_size_in: u32,
        ctx_size_out: u32,
        ctx_in: u64,
        ctx_out: u64,
        flags: u32,
        cpu: u32,
        batch_size: u32,
        pad: u32,
    }

    /// BPF_*_GET_NEXT_ID and BPF_*_GET_FD_BY_ID.
    Id {
        id: u32,
        next_id: u32,
        open_flags: u32,
        token_fd: i32,
    }

    /// BPF_OBJ_GET_INFO_BY_FD.
    Info {
        bpf_fd: u32,
        info_len: u32,
        info: u64,
    }

    /// BPF_RAW_TRACEPOINT_OPEN.
    RawTracepointOpen {
        name: u64,
        prog_fd: u32,
        pad: u32,
        cookie: u64,
    }

    /// BPF_BTF_LOAD.
    BtfLoad {
        btf: u64,
        btf_log_buf: u64,
        btf_size: u32,
        btf_log_size: u32,
        btf_log_level: u32,
        btf_log_true_size: u32,
        btf_flags: u32,
        btf_token_fd: i32,
    }

    /// BPF_LINK_CREATE: the common head, then one of the `Link*` structs below in `target`.
    LinkCreate {
        /// The program, or the map for a struct_ops link.
        prog_fd: u32,
        /// The target's descriptor or an interface index.
        target_fd: u32,
        attach_type: u32,
        flags: u32,
        target: [u64; 6],
    }

    /// `iter_info` of BPF_LINK_CREATE.
    LinkIter {
        iter_info: u64,
        iter_info_len: u32,
        pad: u32,
    }

    /// `perf_event` of BPF_LINK_CREATE.
    LinkPerfEvent {
        bpf_cookie: u64,
    }

    /// `kprobe_multi` of BPF_LINK_CREATE.
    LinkKprobeMulti {
        flags: u32,
        cnt: u32,
        syms: u64,
        addrs: u64,
        cookies: u64,
    }

    /// `tracing` of BPF_LINK_CREATE.
    LinkTracing {
        target_btf_id: u32,
        pad: u32,
        cookie: u64,
    }

    /// `tracing_multi` of BPF_LINK_CREATE.
    LinkTracingMulti {
        ids: u64,
        cookies: u64,
        cnt: u32,
        pad: u32,
    }

    /// `netfilter` of BPF_LINK_CREATE.
    LinkNetfilter {
        pf: u32,
        hooknum: u32,
        priority: i32,
        flags: u32,
    }

    /// `tcx`, `netkit` and `cgroup` of BPF_LINK_CREATE: the same three fields.
    LinkOrdered {
        /// A descriptor, or an id with BPF_F_ID.
        relative: u32,
        pad: u32,
        expected_revision: u64,
    }

    /// `uprobe_multi` of BPF_LINK_CREATE.
    LinkUprobeMulti {
        path: u64,
        offsets: u64,
        ref_ctr_offsets: u64,
        cookies: u64,
        cnt: u32,
        flags: u32,
        pid: u32,
        pad: u32,
    }

    /// BPF_LINK_UPDATE.
    LinkUpdate {
        link_fd: u32,
        new_fd: u32,
        flags: u32,
        old_fd: u32,
    }

    /// BPF_LINK_DETACH.
    LinkDetach {
        link_fd: u32,
    }

    /// BPF_ITER_CREATE.
    IterCreate {
        link_fd: u32,
        flags: u32,
    }

    /// BPF_PROG_BIND_MAP.
    ProgBindMap {
        prog_fd: u32,
        map_fd: u32,
        flags: u32,
    }

    /// Room for what the kernel says of an object of any kind: no pointer in it is set.
    AnyInfo {
        words: [u32; 64],
    }

    /// `struct bpf_map_info`.
    MapInfo {
        map_type: u32,
        id: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        map_flags: u32,
        name: [u8; 16],
        ifindex: u32,
        btf_vmlinux_value_type_id: u32,
        netns_dev: u64,
        netns_ino: u64,
        btf_id: u32,
        btf_key_type_id: u32,
        btf_value_type_id: u32,
        btf_vmlinux_id: u32,
        map_extra: u64,
    }

    /// `struct bpf_prog_info`. Its pointers make the kernel write: only sys/bpf.rs fills them.
    ProgInfo {
        prog_type: u32,
        id: u32,
        tag: [u8; 8],
        jited_prog_len: u32,
        xlated_prog_len: u32,
        jited_prog_insns: u64,
        xlated_prog_insns: u64,
        load_time: u64,
        created_by_uid: u32,
        nr_map_ids: u32,
        map_ids: u64,
        name: [u8; 16],
        ifindex: u32,
        gpl_compatible: u32,
        netns_dev: u64,
        netns_ino: u64,
        nr_jited_ksyms: u32,
        nr_jited_func_lens: u32,
        jited_ksyms: u64,
        jited_func_lens: u64,
        btf_id: u32,
        func_info_rec_size: u32,
        func_info: u64,
        nr_func_info: u32,
        nr_line_info: u32,
        line_info: u64,
        jited_line_info: u64,
        nr_jited_line_info: u32,
        line_info_rec_size: u32,
        jited_line_info_rec_size: u32,
        nr_prog_tags: u32,
        prog_tags: u64,
        run_time_ns: u64,
        run_cnt: u64,
        recursion_misses: u64,
        verified_insns: u32,
        attach_btf_obj_id: u32,
        attach_btf_id: u32,
        pad: u32,
    }

    /// `struct bpf_btf_info`.
    BtfInfo {
        btf: u64,
        btf_size: u32,
        id: u32,
        name: u64,
        name_len: u32,
        kernel_btf: u32,
    }

    /// The head of `struct bpf_link_info`, with room for its union.
    LinkInfo {
        link_type: u32,
        id: u32,
        prog_id: u32,
        pad: u32,
        target: [u64; 6],
    }

    /// `struct perf_event_attr`, as long as PERF_ATTR_SIZE_VER8.
    PerfEventAttr {
        event_type: u32,
        size: u32,
        config: u64,
        /// sample_period or sample_freq.
        sample_period: u64,
        sample_type: u64,
        read_format: u64,
        /// Bitfields in C, so the order of the bits is the host's: see [`perf_flag`].
        flags: u64,
        /// wakeup_events or wakeup_watermark.
        wakeup_events: u32,
        bp_type: u32,
        /// config1, kprobe_func or uprobe_path.
        config1: u64,
        /// config2, kprobe_addr or probe_offset.
        config2: u64,
        branch_sample_type: u64,
        sample_regs_user: u64,
        sample_stack_user: u32,
        clockid: i32,
        sample_regs_intr: u64,
        aux_watermark: u32,
        sample_max_stack: u16,
        reserved_2: u16,
        aux_sample_size: u32,
        aux_action: u32,
        sig_data: u64,
        config3: u64,
    }
}

/// The `n`th bit of the `perf_event_attr` bitfields, which compilers lay from the low end on little-endian hosts and
/// from the high end on big-endian ones.
pub(crate) const fn perf_flag(n: u32) -> u64 {
    if cfg!(target_endian = "big") { 1 << (63 - n) } else { 1 << n }
}

/// Bit number of `freq` in `perf_event_attr`.
pub(crate) const PERF_FLAG_FREQ: u32 = 10;

macro_rules! layout {
    ($($name:ident: $size:literal { $($field:ident @ $offset:literal),* })*) => {$(
        const _: () = assert!(size_of::<$name>() == $size);
        $(const _: () = assert!(core::mem::offset_of!($name, $field) == $offset);)*
    )*};
}

layout! {
    MapCreate: 80 { map_name @ 28, map_ifindex @ 44, btf_vmlinux_value_type_id @ 60, map_extra @ 64, value_type_btf_obj_fd @ 72, map_token_fd @ 76 }
    MapElem: 32 { key @ 8, value @ 16, flags @ 24 }
    ProgLoad: 152 { insns @ 8, license @ 16, log_level @ 24, log_buf @ 32, kern_version @ 40, prog_name @ 48, prog_ifindex @ 64,
        expected_attach_type @ 68, prog_btf_fd @ 72, func_info @ 80, line_info @ 96, attach_btf_id @ 108, attach_fd @ 112,
        fd_array @ 120, core_relos @ 128, log_true_size @ 140, prog_token_fd @ 144, fd_array_cnt @ 148 }
    Obj: 24 { bpf_fd @ 8, file_flags @ 12, path_fd @ 16 }
    ProgAttach: 32 { attach_type @ 8, replace_bpf_fd @ 16, expected_revision @ 24 }
    TestRun: 80 { data_in @ 16, repeat @ 32, ctx_size_in @ 40, ctx_in @ 48, flags @ 64, batch_size @ 72 }
    Id: 16 { next_id @ 4, open_flags @ 8 }
    Info: 16 { info_len @ 4, info @ 8 }
    RawTracepointOpen: 24 { prog_fd @ 8, cookie @ 16 }
    BtfLoad: 40 { btf_log_buf @ 8, btf_size @ 16, btf_log_level @ 24, btf_log_true_size @ 28, btf_token_fd @ 36 }
    LinkCreate: 64 { target_fd @ 4, attach_type @ 8, flags @ 12, target @ 16 }
    LinkIter: 16 { iter_info_len @ 8 }
    LinkKprobeMulti: 32 { cnt @ 4, syms @ 8, addrs @ 16, cookies @ 24 }
    LinkTracing: 16 { cookie @ 8 }
    LinkTracingMulti: 24 { cookies @ 8, cnt @ 16 }
    LinkNetfilter: 16 { priority @ 8, flags @ 12 }
    LinkOrdered: 16 { expected_revision @ 8 }
    LinkUprobeMulti: 48 { offsets @ 8, ref_ctr_offsets @ 16, cookies @ 24, cnt @ 32, flags @ 36, pid @ 40 }
    LinkUpdate: 16 { new_fd @ 4, flags @ 8, old_fd @ 12 }
    IterCreate: 8 { flags @ 4 }
    MapInfo: 88 { name @ 24, ifindex @ 40, netns_dev @ 48, btf_id @ 64, map_extra @ 80 }
    ProgInfo: 232 { tag @ 8, jited_prog_insns @ 24, load_time @ 40, map_ids @ 56, name @ 64, netns_dev @ 88, jited_ksyms @ 112,
        btf_id @ 128, func_info @ 136, line_info @ 152, prog_tags @ 184, run_time_ns @ 192, verified_insns @ 216, attach_btf_id @ 224 }
    BtfInfo: 32 { btf_size @ 8, id @ 12, name @ 16, name_len @ 24 }
    LinkInfo: 64 { prog_id @ 8, target @ 16 }
    PerfEventAttr: 136 { config @ 8, sample_type @ 24, flags @ 40, wakeup_events @ 48, bp_type @ 52, config1 @ 56, config2 @ 64,
        clockid @ 92, aux_watermark @ 104, aux_sample_size @ 112, sig_data @ 120, config3 @ 128 }
}
