// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * The arguments of a static probe of examples/usdt.rs.
 *
 * How an argument is read, the loader says in `__bpf_usdt_specs`: the map of
 * libbpf's bpf/usdt.bpf.h, which a program of your own includes instead of
 * the first half of this file.
 */
#include "corelo.h"

enum { MAX_ARGS = 12 };
enum operand { CONSTANT, REGISTER, MEMORY, INDEXED };

struct __bpf_usdt_arg_spec {
	__u64 val_off;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	__u8 __reserved : 8;
	__u16 idx_reg_off : 12;
	__u16 scale_bitshift : 4;
	enum operand arg_type : 8;
#else
	enum operand arg_type : 8;
	__u16 idx_reg_off : 12;
	__u16 scale_bitshift : 4;
	__u8 __reserved : 8;
#endif
	short reg_off;
	bool arg_signed;
	char arg_bitshift;
};

struct __bpf_usdt_spec {
	struct __bpf_usdt_arg_spec args[MAX_ARGS];
	__u64 usdt_cookie;
	short arg_cnt;
};

struct {
	__uint(type, MAP_ARRAY);
	__uint(max_entries, 16);
	__type(key, int);
	__type(value, struct __bpf_usdt_spec);
} __bpf_usdt_specs SEC(".maps");

static __u64 (*const bpf_get_attach_cookie)(void *ctx) = (void *)174;

/* The value of an argument that is in a register. */
static __always_inline __s64 argument(void *ctx, __u32 index)
{
	__u32 id = bpf_get_attach_cookie(ctx);
	struct __bpf_usdt_spec *spec = bpf_map_lookup_elem(&__bpf_usdt_specs, &id);
	struct __bpf_usdt_arg_spec *arg;
	__u64 value = 0;

	if (!spec || index >= MAX_ARGS || index >= spec->arg_cnt)
		return -1;
	arg = &spec->args[index];
	if (arg->arg_type != REGISTER)
		return -1;
	bpf_probe_read_kernel(&value, sizeof(value), ctx + arg->reg_off);
	value <<= arg->arg_bitshift;
	return arg->arg_signed ? (__s64)value >> arg->arg_bitshift : value >> arg->arg_bitshift;
}

struct request {
	__u64 number;
	__s64 status;
};

struct {
	__uint(type, MAP_RINGBUF);
	__uint(max_entries, 64 * 1024);
} requests SEC(".maps");

SEC("usdt//proc/self/exe:corelo:request")
int on_request(void *ctx)
{
	struct request *request = bpf_ringbuf_reserve(&requests, sizeof(*request), 0);

	if (!request)
		return 0;
	request->number = argument(ctx, 0);
	request->status = argument(ctx, 1);
	bpf_ringbuf_submit(request, 0);
	return 0;
}

LICENSE("Dual MIT/GPL");
