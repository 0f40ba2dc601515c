// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/* Counts who calls a function of a user program or library. Which one is said when it is attached. */
#include "corelo.h"

struct caller {
	char comm[16];
};

struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, 1024);
	__type(key, struct caller);
	__type(value, __u64);
} calls SEC(".maps");

SEC("uprobe")
int on_call(void *ctx)
{
	struct caller caller = {};
	__u64 first = 1, *count;

	bpf_get_current_comm(caller.comm, sizeof(caller.comm));
	count = bpf_map_lookup_elem(&calls, &caller);
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&calls, &caller, &first, 0);
	return 0;
}

LICENSE("Dual MIT/GPL");
