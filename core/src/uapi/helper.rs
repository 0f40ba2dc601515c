//! Helpers that are treated in a way of their own, by number (UAPI: `enum bpf_func_id`).

/// `bpf_probe_read`.
pub const PROBE_READ: i32 = 4;
/// `bpf_probe_read_str`.
pub const PROBE_READ_STR: i32 = 45;
/// `bpf_probe_read_user` (Linux 5.5).
pub const PROBE_READ_USER: i32 = 112;
/// `bpf_probe_read_kernel` (Linux 5.5).
pub const PROBE_READ_KERNEL: i32 = 113;
/// `bpf_probe_read_user_str` (Linux 5.5).
pub const PROBE_READ_USER_STR: i32 = 114;
/// `bpf_probe_read_kernel_str` (Linux 5.5).
pub const PROBE_READ_KERNEL_STR: i32 = 115;
/// `bpf_ktime_get_coarse_ns` (Linux 5.11).
pub const KTIME_GET_COARSE_NS: i32 = 160;
/// `bpf_get_func_ip` (Linux 5.15).
pub const GET_FUNC_IP: i32 = 173;
/// `bpf_get_attach_cookie` (Linux 5.15).
pub const GET_ATTACH_COOKIE: i32 = 174;
