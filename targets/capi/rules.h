// SPDX-License-Identifier: MIT OR Apache-2.0
//
// corelo.h: the C interface of Corelo, a loader of eBPF CO-RE objects for constrained Linux devices.
// Made by: CORELO_WRITE_HEADER=1 cargo test -p corelo-capi --features header
//
// Two levels:
//   (a) core    parse, budget, prepare, instructions into the caller's memory, a report of relocations. It makes no system call,
//               has no allocator, and wants of a C library no more than memcpy, memmove, memset, memcmp and bcmp.
//               Library: libcorelo_core.a (crate corelo-freestanding); #define CORELO_CORE_ONLY leaves out the rest.
//   (b) loader  an object loaded into the running Linux kernel, attached, its maps and ring buffers. Allocates.
//               Library: libcorelo.a or libcorelo.so (crate corelo-capi); has level (a) too.
//
// Rules
//   Pointers    A pointer to data has the number of bytes or items given beside it; NULL goes with 0 only. A pointer for a result
//               may be written to, and is aligned as its type. Strings end with a NUL. Wrong arguments that can be seen are
//               CORELO_CODE_ARGUMENT; the others are undefined, as everywhere in C.
//   Results     Functions return a corelo_code; 0 is CORELO_CODE_OK. Results are stored only with CORELO_CODE_OK, except for the
//               counts of corelo_link with CORELO_CODE_SPACE.
//   Errors      `corelo_error *` may be NULL. Else the caller sets `text` (or NULL) and `text_size` once; each call sets the rest.
//               The text is one line without a newline, cut at `text_size`, for people to read; programs go by the code.
//   Lifetimes   A corelo_prepared lies in the memory given to corelo_prepare and borrows object and BTF: the three must stay in
//               place and unchanged until it is no longer used. corelo_text points into object or BTF. What corelo_budget and
//               corelo_needs_btf are given is free again when they return.
//               A corelo_loader copies the object and owns its descriptors until corelo_close; it borrows only
//               `corelo_options.memory`. A corelo_ring holds its map by itself and may be closed before or after the loader.
//               What a callback is given is gone when the callback returns. A callback must not leave by longjmp or an exception.
//   Threads     Nothing is global but what the kernel keeps, so different handles may be used by different threads at once. One
//               handle (corelo_prepared, corelo_loader, corelo_ring) is used by one thread at a time: the caller's lock, or one
//               thread. It may go from thread to thread. A ring and the loader that it came from are different handles.
//   Forks       Descriptors are close-on-exec.
//   Signals     No function is async-signal-safe. A signal ends the wait of corelo_ring_poll.
//   Panics      None is known that an input causes. Level (a) then calls corelo_panic, which is weak and traps: a firmware that
//               defines it gets the words. Level (b) writes them to stderr and aborts.

#ifndef CORELO_H
#define CORELO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- level (a): core ----

@CORE@

// For a firmware to define, if it wants to; libcorelo_core.a alone calls it. It must not return.
#if defined(__GNUC__)
__attribute__((noreturn))
#endif
void corelo_panic(const char *text, size_t size);

#ifndef CORELO_CORE_ONLY

// ---- level (b): loader ----

@LOADER@

#endif // CORELO_CORE_ONLY

#ifdef __cplusplus
}
#endif

#endif // CORELO_H
