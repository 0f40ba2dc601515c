// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/* A TCP congestion control: that of Reno, which counts what it is asked. */
#include "corelo.h"

/* Only pointed to: the kernel has more of it. */
struct sock {
};

/* The members that are set; the kernel's has more. */
struct tcp_congestion_ops {
	char name[16];
	__u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	__u32 (*undo_cwnd)(struct sock *sk);
};

extern __u32 tcp_reno_ssthresh(struct sock *sk) __ksym;
extern void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;
extern __u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;

/* How often the window was to grow. */
__u64 acknowledgements;

SEC("struct_ops/ssthresh")
__u32 ssthresh(__u64 *ctx)
{
	return tcp_reno_ssthresh((struct sock *)ctx[0]);
}

SEC("struct_ops/cong_avoid")
void cong_avoid(__u64 *ctx)
{
	__sync_fetch_and_add(&acknowledgements, 1);
	tcp_reno_cong_avoid((struct sock *)ctx[0], ctx[1], ctx[2]);
}

SEC("struct_ops/undo_cwnd")
__u32 undo_cwnd(__u64 *ctx)
{
	return tcp_reno_undo_cwnd((struct sock *)ctx[0]);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops counted = {
	.name = "corelo_counted",
	.ssthresh = (void *)ssthresh,
	.cong_avoid = (void *)cong_avoid,
	.undo_cwnd = (void *)undo_cwnd,
};

LICENSE("Dual MIT/GPL");
