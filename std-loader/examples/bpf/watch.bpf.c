// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/* A record for every process that starts, or those of one parent only. */
#include "corelo.h"

struct event {
	__u32 pid;
	__u32 ppid;
	char comm[16];
};

/* Set before the load; 0 is any. */
const volatile __u32 parent = 0;

/* Records that found no room. */
__u64 lost;

struct task_struct {
	struct task_struct *real_parent;
	int tgid;
} __core;

struct {
	__uint(type, MAP_RINGBUF);
	__uint(max_entries, 64 * 1024);
} events SEC(".maps");

/* First argument: the task. */
SEC("raw_tp/sched_process_exec")
int on_exec(__u64 *args)
{
	struct task_struct *task = (void *)args[0], *real_parent = NULL;
	struct event *event;
	__u32 ppid = 0;

	bpf_probe_read_kernel(&real_parent, sizeof(real_parent), &task->real_parent);
	bpf_probe_read_kernel(&ppid, sizeof(ppid), &real_parent->tgid);
	if (parent && ppid != parent)
		return 0;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	event->pid = bpf_get_current_pid_tgid() >> 32;
	event->ppid = ppid;
	bpf_get_current_comm(event->comm, sizeof(event->comm));
	bpf_ringbuf_submit(event, 0);
	return 0;
}

LICENSE("Dual MIT/GPL");
