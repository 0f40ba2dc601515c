// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Preloaded into a peer's program: how long it is inside bpf(2), without the cost of being traced. All peers make the call
// through the C library's syscall(). At the end it writes `bpf_ns N` to standard error.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>

static long (*real_syscall)(long, ...);
static long long inside;

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

long syscall(long number, ...) {
    va_list list;
    va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long);
    long d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
    if (!real_syscall) *(void **)&real_syscall = dlsym(RTLD_NEXT, "syscall");
    if (number != SYS_bpf) return real_syscall(number, a, b, c, d, e, f);
    long long start = now();
    long result = real_syscall(number, a, b, c, d, e, f);
    inside += now() - start;
    return result;
}

__attribute__((destructor)) static void tell(void) {
    fprintf(stderr, "bpf_ns %lld\n", inside);
}
