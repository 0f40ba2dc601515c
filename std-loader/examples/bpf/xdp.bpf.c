// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/* Counts what comes in on a network interface by protocol, for each CPU apart, and lets it pass. */
#include "corelo.h"

enum { IPV4, IPV6, ARP, OTHER, PROTOCOLS };

struct counted {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, PROTOCOLS);
	__type(key, __u32);
	__type(value, struct counted);
} counts SEC(".maps");

struct ethernet {
	__u8 to[6];
	__u8 from[6];
	__u8 protocol[2];
};

static __always_inline __u32 protocol_of(const struct ethernet *frame, const void *end)
{
	if ((const void *)(frame + 1) > end)
		return OTHER;
	switch (frame->protocol[0] << 8 | frame->protocol[1]) {
	case 0x0800:
		return IPV4;
	case 0x86dd:
		return IPV6;
	case 0x0806:
		return ARP;
	default:
		return OTHER;
	}
}

SEC("xdp")
int count(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 protocol = protocol_of(data, end);
	struct counted *counted = bpf_map_lookup_elem(&counts, &protocol);

	if (counted) {
		/* This CPU's own: nobody else writes it. */
		counted->packets++;
		counted->bytes += end - data;
	}
	return XDP_PASS_;
}

LICENSE("Dual MIT/GPL");
