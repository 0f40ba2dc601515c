//! `enum bpf_attach_type` of the uapi, those that this crate attaches with. The program's own is what most calls take.

/// BPF_TRACE_RAW_TP.
pub const TRACE_RAW_TP: u32 = 23;
/// BPF_TRACE_ITER.
pub const TRACE_ITER: u32 = 28;
/// BPF_XDP.
pub const XDP: u32 = 37;
/// BPF_PERF_EVENT.
pub const PERF_EVENT: u32 = 41;
/// BPF_TRACE_KPROBE_MULTI.
pub const TRACE_KPROBE_MULTI: u32 = 42;
/// BPF_STRUCT_OPS.
pub const STRUCT_OPS: u32 = 44;
/// BPF_NETFILTER.
pub const NETFILTER: u32 = 45;
/// BPF_TCX_INGRESS.
pub const TCX_INGRESS: u32 = 46;
/// BPF_TCX_EGRESS.
pub const TCX_EGRESS: u32 = 47;
/// BPF_TRACE_UPROBE_MULTI.
pub const TRACE_UPROBE_MULTI: u32 = 48;
/// BPF_NETKIT_PRIMARY.
pub const NETKIT_PRIMARY: u32 = 54;
/// BPF_NETKIT_PEER.
pub const NETKIT_PEER: u32 = 55;
/// BPF_TRACE_KPROBE_SESSION.
pub const TRACE_KPROBE_SESSION: u32 = 56;
/// BPF_TRACE_UPROBE_SESSION.
pub const TRACE_UPROBE_SESSION: u32 = 57;
/// BPF_TRACE_FENTRY_MULTI.
pub const TRACE_FENTRY_MULTI: u32 = 59;
