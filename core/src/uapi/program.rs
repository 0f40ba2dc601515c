//! Program and attach types: numbers of the kernel's interface, with the names that libbpf and bpftool print.

use core::fmt;

macro_rules! numbers {
    ($(#[$doc:meta])* $newtype:ident { $($constant:ident = $number:literal, $name:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $newtype(pub u32);

        impl $newtype {
            $(
                #[doc = concat!("`", $name, "`")]
                pub const $constant: Self = Self($number);
            )*

            /// The name that libbpf and bpftool have for it; `None` for a number that did not exist when this was
            /// written.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some($name),)*
                    _ => None,
                }
            }
        }

        impl fmt::Display for $newtype {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "unknown({})", self.0),
                }
            }
        }
    };
}

/// BPF_F_SLEEPABLE: the program may sleep (Linux 5.10).
pub const BPF_F_SLEEPABLE: u32 = 1 << 4;
/// BPF_F_XDP_HAS_FRAGS: it takes XDP packets in several buffers (Linux 5.18).
pub const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;

numbers! {
    /// The type of a program (UAPI: `enum bpf_prog_type`).
    ProgType {
        UNSPEC = 0, "unspec";
        SOCKET_FILTER = 1, "socket_filter";
        KPROBE = 2, "kprobe";
        SCHED_CLS = 3, "sched_cls";
        SCHED_ACT = 4, "sched_act";
        TRACEPOINT = 5, "tracepoint";
        XDP = 6, "xdp";
        PERF_EVENT = 7, "perf_event";
        CGROUP_SKB = 8, "cgroup_skb";
        CGROUP_SOCK = 9, "cgroup_sock";
        LWT_IN = 10, "lwt_in";
        LWT_OUT = 11, "lwt_out";
        LWT_XMIT = 12, "lwt_xmit";
        SOCK_OPS = 13, "sock_ops";
        SK_SKB = 14, "sk_skb";
        CGROUP_DEVICE = 15, "cgroup_device";
        SK_MSG = 16, "sk_msg";
        RAW_TRACEPOINT = 17, "raw_tracepoint";
        CGROUP_SOCK_ADDR = 18, "cgroup_sock_addr";
        LWT_SEG6LOCAL = 19, "lwt_seg6local";
        LIRC_MODE2 = 20, "lirc_mode2";
        SK_REUSEPORT = 21, "sk_reuseport";
        FLOW_DISSECTOR = 22, "flow_dissector";
        CGROUP_SYSCTL = 23, "cgroup_sysctl";
        RAW_TRACEPOINT_WRITABLE = 24, "raw_tracepoint_writable";
        CGROUP_SOCKOPT = 25, "cgroup_sockopt";
        TRACING = 26, "tracing";
        STRUCT_OPS = 27, "struct_ops";
        EXT = 28, "ext";
        LSM = 29, "lsm";
        SK_LOOKUP = 30, "sk_lookup";
        SYSCALL = 31, "syscall";
        NETFILTER = 32, "netfilter";
    }
}

numbers! {
    /// Where a program is attached (UAPI: `enum bpf_attach_type`). 0 also stands for none: which it is, the program's
    /// type says.
    AttachType {
        CGROUP_INET_INGRESS = 0, "cgroup_inet_ingress";
        CGROUP_INET_EGRESS = 1, "cgroup_inet_egress";
        CGROUP_INET_SOCK_CREATE = 2, "cgroup_inet_sock_create";
        CGROUP_SOCK_OPS = 3, "cgroup_sock_ops";
        SK_SKB_STREAM_PARSER = 4, "sk_skb_stream_parser";
        SK_SKB_STREAM_VERDICT = 5, "sk_skb_stream_verdict";
        CGROUP_DEVICE = 6, "cgroup_device";
        SK_MSG_VERDICT = 7, "sk_msg_verdict";
        CGROUP_INET4_BIND = 8, "cgroup_inet4_bind";
        CGROUP_INET6_BIND = 9, "cgroup_inet6_bind";
        CGROUP_INET4_CONNECT = 10, "cgroup_inet4_connect";
        CGROUP_INET6_CONNECT = 11, "cgroup_inet6_connect";
        CGROUP_INET4_POST_BIND = 12, "cgroup_inet4_post_bind";
        CGROUP_INET6_POST_BIND = 13, "cgroup_inet6_post_bind";
        CGROUP_UDP4_SENDMSG = 14, "cgroup_udp4_sendmsg";
        CGROUP_UDP6_SENDMSG = 15, "cgroup_udp6_sendmsg";
        LIRC_MODE2 = 16, "lirc_mode2";
        FLOW_DISSECTOR = 17, "flow_dissector";
        CGROUP_SYSCTL = 18, "cgroup_sysctl";
        CGROUP_UDP4_RECVMSG = 19, "cgroup_udp4_recvmsg";
        CGROUP_UDP6_RECVMSG = 20, "cgroup_udp6_recvmsg";
        CGROUP_GETSOCKOPT = 21, "cgroup_getsockopt";
        CGROUP_SETSOCKOPT = 22, "cgroup_setsockopt";
        TRACE_RAW_TP = 23, "trace_raw_tp";
        TRACE_FENTRY = 24, "trace_fentry";
        TRACE_FEXIT = 25, "trace_fexit";
        MODIFY_RETURN = 26, "modify_return";
        LSM_MAC = 27, "lsm_mac";
        TRACE_ITER = 28, "trace_iter";
        CGROUP_INET4_GETPEERNAME = 29, "cgroup_inet4_getpeername";
        CGROUP_INET6_GETPEERNAME = 30, "cgroup_inet6_getpeername";
        CGROUP_INET4_GETSOCKNAME = 31, "cgroup_inet4_getsockname";
        CGROUP_INET6_GETSOCKNAME = 32, "cgroup_inet6_getsockname";
        XDP_DEVMAP = 33, "xdp_devmap";
        CGROUP_INET_SOCK_RELEASE = 34, "cgroup_inet_sock_release";
        XDP_CPUMAP = 35, "xdp_cpumap";
        SK_LOOKUP = 36, "sk_lookup";
        XDP = 37, "xdp";
        SK_SKB_VERDICT = 38, "sk_skb_verdict";
        SK_REUSEPORT_SELECT = 39, "sk_reuseport_select";
        SK_REUSEPORT_SELECT_OR_MIGRATE = 40, "sk_reuseport_select_or_migrate";
        PERF_EVENT = 41, "perf_event";
        TRACE_KPROBE_MULTI = 42, "trace_kprobe_multi";
        LSM_CGROUP = 43, "lsm_cgroup";
        STRUCT_OPS = 44, "struct_ops";
        NETFILTER = 45, "netfilter";
        TCX_INGRESS = 46, "tcx_ingress";
        TCX_EGRESS = 47, "tcx_egress";
        TRACE_UPROBE_MULTI = 48, "trace_uprobe_multi";
        CGROUP_UNIX_CONNECT = 49, "cgroup_unix_connect";
        CGROUP_UNIX_SENDMSG = 50, "cgroup_unix_sendmsg";
        CGROUP_UNIX_RECVMSG = 51, "cgroup_unix_recvmsg";
        CGROUP_UNIX_GETPEERNAME = 52, "cgroup_unix_getpeername";
        CGROUP_UNIX_GETSOCKNAME = 53, "cgroup_unix_getsockname";
        NETKIT_PRIMARY = 54, "netkit_primary";
        NETKIT_PEER = 55, "netkit_peer";
        TRACE_KPROBE_SESSION = 56, "trace_kprobe_session";
        TRACE_UPROBE_SESSION = 57, "trace_uprobe_session";
        TRACE_FSESSION = 58, "trace_fsession";
        TRACE_FENTRY_MULTI = 59, "trace_fentry_multi";
        TRACE_FEXIT_MULTI = 60, "trace_fexit_multi";
        TRACE_FSESSION_MULTI = 61, "trace_fsession_multi";
    }
}

impl AttachType {
    /// No attach type: what programs have whose type needs none.
    pub const NONE: Self = Self(0);
}
