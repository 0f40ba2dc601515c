// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/* What comes in and goes out of a network interface, counted in variables. */
#include "corelo.h"

enum { TCX_NEXT = -1 };

struct traffic {
	__u64 packets;
	__u64 bytes;
};

struct traffic received, sent;

static __always_inline int count(struct traffic *traffic, const struct __sk_buff *skb)
{
	__sync_fetch_and_add(&traffic->packets, 1);
	__sync_fetch_and_add(&traffic->bytes, skb->len);
	return TCX_NEXT;
}

SEC("tcx/ingress")
int on_receive(struct __sk_buff *skb)
{
	return count(&received, skb);
}

SEC("tcx/egress")
int on_send(struct __sk_buff *skb)
{
	return count(&sent, skb);
}

LICENSE("Dual MIT/GPL");
