// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * Reports every exec and every exit of a process over one ring buffer.
 *
 * Made for kernels from 5.10 on of any word size. Both programs are raw
 * tracepoints: these need neither BTF in the kernel nor a BPF trampoline,
 * their arguments are 8 bytes each on every kernel, and nothing is read at a
 * fixed offset. Fields are read with bpf_probe_read_kernel at relocated
 * offsets, and pointers with their relocated size, because a 32-bit kernel's
 * pointers have 4 bytes while this object's have 8.
 */
#include "corelo.h"

enum { COMM_LEN = 16, FILENAME_LEN = 128 };

enum event_kind {
	EVENT_EXEC = 1,
	EVENT_EXIT = 2,
};

/* One record of the ring buffer, in the byte order of the device. */
struct event {
	__u32 kind;        /* enum event_kind */
	__u32 pid;         /* of the process (tgid), in the root namespace */
	__u32 ppid;        /* of its real parent (tgid) */
	__u32 pidns;       /* inode number of the namespace its children get */
	__s32 exit_code;   /* exit only: 0..255 */
	__u32 exit_signal; /* exit only: the signal that ended it, or 0 */
	__u64 duration_ns; /* exit only: since the process was forked */
	char comm[COMM_LEN];
	char filename[FILENAME_LEN]; /* exec only */
};

struct ns_common {
	__u32 inum;
} __core;

struct pid_namespace {
	struct ns_common ns;
} __core;

struct nsproxy {
	struct pid_namespace *pid_ns_for_children;
} __core;

struct task_struct {
	struct task_struct *real_parent;
	struct nsproxy *nsproxy;
	int pid;
	int tgid;
	int exit_code;
	__u64 start_time;
} __core;

struct linux_binprm {
	const char *filename;
} __core;

struct {
	__uint(type, MAP_RINGBUF);
	__uint(max_entries, 128 * 1024);
} events SEC(".maps");

/* Events that found the ring buffer full, one count per CPU. */
struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

/*
 * Keeps struct event among the types of the object for whoever decodes it;
 * the compiler drops what is only the target of a void pointer.
 */
const struct event *unused_event __attribute__((unused));

static __always_inline __u64 read_pointer(const void *at, __u32 size)
{
	__u64 wide = 0;
	__u32 narrow = 0;

	/* Two variables, as the low half lies at the end in big endian. */
	if (size == sizeof(narrow)) {
		bpf_probe_read_kernel(&narrow, sizeof(narrow), at);
		return narrow;
	}
	bpf_probe_read_kernel(&wide, sizeof(wide), at);
	return wide;
}

#define POINTER(p, field) ((void *)read_pointer(&(p)->field, core_size((p)->field)))

#define NUMBER(p, field)                                            \
	({                                                          \
		typeof((p)->field) number_ = 0;                     \
		bpf_probe_read_kernel(&number_, sizeof(number_), &(p)->field); \
		number_;                                            \
	})

static __always_inline struct event *begin(struct task_struct *task, __u32 kind)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	struct task_struct *parent;
	struct nsproxy *proxy;

	if (!event) {
		__u32 zero = 0;
		__u64 *count = bpf_map_lookup_elem(&lost, &zero);

		if (count)
			*count += 1;
		return NULL;
	}
	/* What is reserved holds old records: every byte is written. */
	__builtin_memset(event, 0, sizeof(*event));
	event->kind = kind;
	event->pid = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(event->comm, sizeof(event->comm));

	parent = POINTER(task, real_parent);
	if (parent)
		event->ppid = NUMBER(parent, tgid);

	proxy = POINTER(task, nsproxy);
	if (proxy) {
		struct pid_namespace *ns = POINTER(proxy, pid_ns_for_children);

		if (ns)
			event->pidns = NUMBER(ns, ns.inum);
	}
	return event;
}

/* Arguments: the task, its pid before the exec, the binary's parameters. */
SEC("raw_tp/sched_process_exec")
int on_exec(__u64 *args)
{
	struct task_struct *task = (void *)args[0];
	struct linux_binprm *bprm = (void *)args[2];
	struct event *event = begin(task, EVENT_EXEC);
	const char *filename;

	if (!event)
		return 0;
	filename = POINTER(bprm, filename);
	bpf_probe_read_kernel_str(event->filename, sizeof(event->filename), filename);
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* First argument: the task. Newer kernels pass one more, not needed here. */
SEC("raw_tp/sched_process_exit")
int on_exit(__u64 *args)
{
	struct task_struct *task = (void *)args[0];
	__u64 ids = bpf_get_current_pid_tgid();
	struct event *event;
	__s32 status;

	/* Only the first thread of a process stands for the process. */
	if ((__u32)ids != (__u32)(ids >> 32))
		return 0;
	event = begin(task, EVENT_EXIT);
	if (!event)
		return 0;
	status = NUMBER(task, exit_code);
	event->exit_code = (status >> 8) & 0xff;
	event->exit_signal = status & 0x7f;
	event->duration_ns = bpf_ktime_get_ns() - NUMBER(task, start_time);
	bpf_ringbuf_submit(event, 0);
	return 0;
}

LICENSE("Dual MIT/GPL");
