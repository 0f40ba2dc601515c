// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/* Counts processes that start, in a map that is there for as long as its name is. */
#include "corelo.h"

struct {
	__uint(type, MAP_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
	__uint(pinning, PIN_BY_NAME);
} starts SEC(".maps");

SEC("raw_tp/sched_process_exec")
int on_exec(void *ctx)
{
	__u32 only = 0;
	__u64 *count = bpf_map_lookup_elem(&starts, &only);

	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

LICENSE("Dual MIT/GPL");
