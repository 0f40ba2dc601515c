// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/* Processes of a cgroup may not connect to one port; who tries is told. */
#include "corelo.h"

enum { REFUSE, ALLOW };

/* uapi/linux/bpf.h, as far as we read it. */
struct bpf_sock_addr {
	__u32 user_family;
	__u32 user_ip4;
	__u32 user_ip6[4];
	__u32 user_port; /* in the network's order */
};

/* In this machine's order; set before the load. */
const volatile __u16 port = 0;

struct refusal {
	__u32 pid;
	char comm[16];
};

struct {
	__uint(type, MAP_RINGBUF);
	__uint(max_entries, 64 * 1024);
} refusals SEC(".maps");

static __always_inline int guard(struct bpf_sock_addr *to)
{
	const __u16 wanted = to->user_port;
	const __u8 *bytes = (const __u8 *)&wanted;
	struct refusal *refusal;

	if ((bytes[0] << 8 | bytes[1]) != port)
		return ALLOW;
	refusal = bpf_ringbuf_reserve(&refusals, sizeof(*refusal), 0);
	if (refusal) {
		refusal->pid = bpf_get_current_pid_tgid() >> 32;
		bpf_get_current_comm(refusal->comm, sizeof(refusal->comm));
		bpf_ringbuf_submit(refusal, 0);
	}
	return REFUSE;
}

SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *to)
{
	return guard(to);
}

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr *to)
{
	return guard(to);
}

LICENSE("Dual MIT/GPL");
