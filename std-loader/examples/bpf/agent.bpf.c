// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * The small agent that bench/compare writes against each loader: every
 * process that starts is counted under its parent, and those of one user, or
 * of all, are reported over a ring buffer.
 */
#include "corelo.h"

enum { COMM_LEN = 16 };

/* Set before the load; all users where `every_user` is not 0. */
struct config {
	__u32 uid;
	__u32 every_user;
};
const volatile struct config config = { 0, 1 };

/* What is counted under each parent. */
struct stats {
	__u64 execs;
	__u64 last_ns; /* since boot */
};

/* One record of the ring buffer. */
struct event {
	__u32 pid;
	__u32 ppid;
	__u32 uid;
	char comm[COMM_LEN];
};

struct task_struct {
	struct task_struct *real_parent;
	int tgid;
} __core;

struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32); /* pid of the parent */
	__type(value, struct stats);
} stats SEC(".maps");

struct {
	__uint(type, MAP_RINGBUF);
	__uint(max_entries, 64 * 1024);
} events SEC(".maps");

/* Keeps struct event among the types of the object for whoever decodes it. */
const struct event *unused_event __attribute__((unused));

/* First argument: the task. */
SEC("raw_tp/sched_process_exec")
int on_exec(__u64 *args)
{
	struct task_struct *task = (void *)args[0], *parent = NULL;
	struct stats first = { 0, 0 }, *entry;
	__u32 ppid = 0, uid = bpf_get_current_uid_gid();
	struct event *event;

	bpf_probe_read_kernel(&parent, sizeof(parent), &task->real_parent);
	bpf_probe_read_kernel(&ppid, sizeof(ppid), &parent->tgid);

	entry = bpf_map_lookup_elem(&stats, &ppid);
	if (!entry) {
		bpf_map_update_elem(&stats, &ppid, &first, 1 /* BPF_NOEXIST */);
		entry = bpf_map_lookup_elem(&stats, &ppid);
	}
	if (entry) {
		__sync_fetch_and_add(&entry->execs, 1);
		entry->last_ns = bpf_ktime_get_ns();
	}

	if (!config.every_user && uid != config.uid)
		return 0;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event)
		return 0;
	event->pid = bpf_get_current_pid_tgid() >> 32;
	event->ppid = ppid;
	event->uid = uid;
	bpf_get_current_comm(event->comm, sizeof(event->comm));
	bpf_ringbuf_submit(event, 0);
	return 0;
}

LICENSE("Dual MIT/GPL");
