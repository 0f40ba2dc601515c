// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/* A line of text for every process, written as the kernel walks over its tasks. */
#include "corelo.h"

static long (*const bpf_seq_printf)(void *seq, const char *fmt, __u32 size, const void *data, __u32 len) = (void *)126;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
} __core;

struct task_struct {
	int pid;
	int tgid;
	struct task_struct *real_parent;
	char comm[16];
} __core;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} __core;

static const char heading[] = "    PID    PPID  NAME\n";
static const char line[] = "%7d %7d  %s\n";

SEC("iter/task")
int each_task(struct bpf_iter__task *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	struct task_struct *task = ctx->task;
	__u64 data[3];

	if (!task)
		return 0;
	if (ctx->meta->seq_num == 0)
		bpf_seq_printf(seq, heading, sizeof(heading), NULL, 0);
	/* A thread that is not the first is no process. */
	if (task->pid != task->tgid)
		return 0;
	data[0] = task->tgid;
	data[1] = task->real_parent->tgid;
	data[2] = (__u64)(unsigned long)task->comm;
	bpf_seq_printf(seq, line, sizeof(line), data, sizeof(data));
	return 0;
}

LICENSE("Dual MIT/GPL");
