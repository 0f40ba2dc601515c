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

/**
 * What a call ended with. Codes keep their numbers; new ones are added at the end.
 */
typedef enum {
  /**
   * Done.
   */
  CORELO_CODE_OK = 0,
  /**
   * A pointer is NULL that must not be, or a number is out of range.
   */
  CORELO_CODE_ARGUMENT = 1,
  /**
   * The memory given is too small: `wanted` and `left` of the error say how much.
   */
  CORELO_CODE_MEMORY = 2,
  /**
   * The buffer given for the result is too small; the count that was stored says how much it would take.
   */
  CORELO_CODE_SPACE = 3,
  /**
   * The object is damaged, or no BPF object.
   */
  CORELO_CODE_OBJECT = 4,
  /**
   * The kernel's BTF is damaged, or no BTF.
   */
  CORELO_CODE_KERNEL_BTF = 5,
  /**
   * The object asks something of the kernel's BTF, and there is none.
   */
  CORELO_CODE_NEEDS_BTF = 6,
  /**
   * Object, kernel BTF and this machine do not all have one byte order.
   */
  CORELO_CODE_BYTE_ORDER = 7,
  /**
   * A program cannot be linked: a relocation of it fails.
   */
  CORELO_CODE_LINK = 8,
  /**
   * There is nothing of this name or number.
   */
  CORELO_CODE_NOT_FOUND = 9,
  /**
   * A system call failed: `os_error` says how.
   */
  CORELO_CODE_SYSTEM = 10,
  /**
   * The kernel refuses a program; `corelo_log` has the verifier's words.
   */
  CORELO_CODE_VERIFIER = 11,
  /**
   * A program cannot be attached.
   */
  CORELO_CODE_ATTACH = 12,
  /**
   * Called in the wrong order: maps before loading, loading twice.
   */
  CORELO_CODE_STATE = 13,
} corelo_code;

/**
 * What stands in an instruction that the loader fills in.
 */
typedef enum {
  /**
   * A map's descriptor goes into `imm` of the first slot.
   */
  CORELO_REFERENCE_MAP = 0,
  /**
   * The same; `imm` of the second slot already has the offset into the map's value.
   */
  CORELO_REFERENCE_MAP_VALUE = 1,
  /**
   * A kernel symbol's address goes into both slots, or its BTF id into the first (`src_reg` 3).
   */
  CORELO_REFERENCE_EXTERN_LOAD = 2,
  /**
   * A kernel function's BTF id goes into `imm`.
   */
  CORELO_REFERENCE_EXTERN_CALL = 3,
} corelo_reference;

/**
 * What became of a relocation.
 */
typedef enum {
  /**
   * The instruction has the kernel's value.
   */
  CORELO_STATUS_PATCHED = 0,
  /**
   * The kernel lacks what it reads: it is a call that no verifier lets pass, fine where it is never reached.
   */
  CORELO_STATUS_POISONED = 1,
  /**
   * Neither could be done: the program cannot be linked.
   */
  CORELO_STATUS_FAILED = 2,
} corelo_status;

/**
 * An object made ready. It lies in the memory given to `corelo_prepare`, borrows the object and the kernel's BTF, and
 * needs no end: when the three are no longer used they may be freed.
 */
typedef struct corelo_prepared corelo_prepared;

/**
 * Bytes of the object or of the kernel's BTF: no NUL at the end that counts.
 */
typedef struct {
  /**
   * The first byte; never NULL.
   */
  const char *data;
  /**
   * How many there are.
   */
  uintptr_t size;
} corelo_text;

/**
 * What an object says of itself at first sight.
 */
typedef struct {
  /**
   * The licence; empty where there is none.
   */
  corelo_text license;
  /**
   * The number in the section `version`, or 0.
   */
  uint32_t version;
  /**
   * Whether it is big-endian.
   */
  bool is_big_endian;
  /**
   * Whether it has BTF.
   */
  bool has_btf;
} corelo_object_info;

/**
 * Why a call failed. The caller sets `text` and `text_size`; the call fills in the rest. A NULL instead of the whole
 * struct is fine: the code is the result of the call anyway.
 */
typedef struct {
  /**
   * Where the words go: one line, with a NUL, cut where they do not fit. May be NULL.
   */
  char *text;
  /**
   * Bytes at `text`.
   */
  uintptr_t text_size;
  /**
   * The call's result again.
   */
  corelo_code code;
  /**
   * The errno of the system call that failed, or 0.
   */
  int32_t os_error;
  /**
   * With `Memory`: bytes that were wanted for one piece of the work. 0 otherwise.
   */
  uintptr_t wanted;
  /**
   * With `Memory`: bytes that were left.
   */
  uintptr_t left;
} corelo_error;

/**
 * A program as the object declares it.
 */
typedef struct {
  /**
   * Its name: the function's.
   */
  corelo_text name;
  /**
   * Its section: what it attaches to.
   */
  corelo_text section;
  /**
   * `enum bpf_prog_type`, as the section says; 0 where the section says nothing known.
   */
  uint32_t prog_type;
  /**
   * `enum bpf_attach_type` to load it with.
   */
  uint32_t expected_attach_type;
  /**
   * The kernel type that it is loaded for (fentry, fexit, lsm, tp_btf and others), or 0.
   */
  uint32_t attach_btf_id;
  /**
   * Instructions of 8 bytes of the function itself; what it calls is appended by `corelo_link`.
   */
  uint32_t insn_count;
  /**
   * Whether it is to be loaded with BPF_F_SLEEPABLE.
   */
  bool is_sleepable;
  /**
   * Whether its section starts with `?`: not loaded unless asked for.
   */
  bool is_optional;
  /**
   * Whether the kernel lacks the type that it is loaded for.
   */
  bool is_target_missing;
} corelo_program_spec;

/**
 * An instruction that the loader fills in.
 */
typedef struct {
  /**
   * The slot in the linked program.
   */
  uint32_t insn_idx;
  /**
   * What it stands for.
   */
  corelo_reference kind;
  /**
   * The number of the map or extern.
   */
  uint32_t number;
} corelo_patch;

/**
 * A map as the object declares it: numbers as BPF_MAP_CREATE takes them.
 */
typedef struct {
  /**
   * Its name in the source; of global data, the section's.
   */
  corelo_text name;
  /**
   * What the map holds at first: `value_size` bytes or fewer (the rest is zero); empty for maps that start empty.
   */
  corelo_text data;
  /**
   * Flags beyond `flags`, for some map types.
   */
  uint64_t extra;
  /**
   * `enum bpf_map_type`
   */
  uint32_t map_type;
  /**
   * Bytes of a key.
   */
  uint32_t key_size;
  /**
   * Bytes of a value.
   */
  uint32_t value_size;
  /**
   * How many entries it can hold.
   */
  uint32_t max_entries;
  /**
   * BPF_F_*
   */
  uint32_t flags;
  /**
   * The number of the map that is the model of this one's inner maps, or UINT32_MAX.
   */
  uint32_t inner;
  /**
   * Whether it holds global data, and so is an array of one element.
   */
  bool is_data;
} corelo_map_spec;

/**
 * One CO-RE relocation.
 */
typedef struct {
  /**
   * The function that it is in; empty where it is in none.
   */
  corelo_text function;
  /**
   * The section.
   */
  corelo_text section;
  /**
   * The slot in the function, as compiled.
   */
  uint32_t insn_idx;
  /**
   * `enum bpf_core_relo_kind`; UINT32_MAX where it is none that is known.
   */
  uint32_t kind;
  /**
   * The id of the local root type in the object's BTF.
   */
  uint32_t local_type_id;
  /**
   * What became of it.
   */
  corelo_status status;
  /**
   * The value as compiled.
   */
  uint64_t local_value;
  /**
   * The value in the kernel.
   */
  uint64_t target_value;
  /**
   * The instruction as it is now: 8 bytes in the object's byte order, or 16 of a 64-bit load.
   */
  uint8_t insn[16];
  /**
   * Bytes of `insn` that count.
   */
  uint32_t insn_size;
  /**
   * With `Failed`: why.
   */
  corelo_text fault;
} corelo_relocation;

/**
 * Called with each relocation, which is valid until it returns. Anything but 0 ends the report.
 */
typedef int (*corelo_each_relocation)(void *context, const corelo_relocation *relocation);

/**
 * The version of this interface: the major number times 1000, plus the minor number. The same major number means that
 * programs compiled against an older header work.
 */
uint32_t corelo_abi_version(void);

/**
 * Parses an object's headers and says what it is. No memory is needed.
 *
 * Result: `CORELO_CODE_OK`, `CORELO_CODE_OBJECT`, `CORELO_CODE_ARGUMENT`. `info` may be NULL.
 */
corelo_code corelo_check(const uint8_t *object, uintptr_t object_size, corelo_object_info *info, corelo_error *error);

/**
 * Whether an object asks anything of the kernel's BTF: where not, none need be found. `memory` is used while this runs.
 *
 * Result: `CORELO_CODE_OK`, with the answer in `answer`; `CORELO_CODE_OBJECT`, `CORELO_CODE_MEMORY`,
 * `CORELO_CODE_ARGUMENT`.
 */
corelo_code corelo_needs_btf(const uint8_t *object,
                             uintptr_t object_size,
                             uint8_t *memory,
                             uintptr_t memory_size,
                             bool *answer,
                             corelo_error *error);

/**
 * Makes an object ready in `memory`: every relocation is decided. `btf` is the kernel's BTF, or NULL with size 0 where
 * the object asks nothing of it (`corelo_needs_btf`). On success `*prepared` is valid for as long as `object`, `btf`
 * and `memory` stay where they are, unchanged; nothing has to be freed.
 *
 * Result: `CORELO_CODE_OK`, `CORELO_CODE_OBJECT`, `CORELO_CODE_KERNEL_BTF`, `CORELO_CODE_NEEDS_BTF`,
 * `CORELO_CODE_BYTE_ORDER`, `CORELO_CODE_MEMORY`, `CORELO_CODE_ARGUMENT`.
 */
corelo_code corelo_prepare(const uint8_t *object,
                           uintptr_t object_size,
                           const uint8_t *btf,
                           uintptr_t btf_size,
                           uint8_t *memory,
                           uintptr_t memory_size,
                           corelo_prepared **prepared,
                           corelo_error *error);

/**
 * The bytes of memory that an object needs with this kernel's BTF: all of `corelo_prepare`, and `corelo_link` of every
 * program. With `*needed` bytes that start at a multiple of 8 both work; with one fewer they do not. It is found by
 * doing the work once in `memory`, which may be larger, so it belongs on a build machine (of the device's pointer size)
 * or into a first boot.
 *
 * Result: as `corelo_prepare` and `corelo_link`.
 */
corelo_code corelo_budget(const uint8_t *object,
                          uintptr_t object_size,
                          const uint8_t *btf,
                          uintptr_t btf_size,
                          uint8_t *memory,
                          uintptr_t memory_size,
                          uintptr_t *needed,
                          corelo_error *error);

/**
 * How many programs the object has. NULL has none.
 */
uintptr_t corelo_program_count(const corelo_prepared *prepared);

/**
 * What the program numbered `program` (from 0) is.
 *
 * Result: `CORELO_CODE_OK`, `CORELO_CODE_NOT_FOUND`, `CORELO_CODE_ARGUMENT`.
 */
corelo_code corelo_program_info(const corelo_prepared *prepared,
                                uintptr_t program,
                                corelo_program_spec *info,
                                corelo_error *error);

/**
 * Links the program numbered `program`: its subprograms appended, relocations applied, `insn_count` instructions of 8
 * bytes written to `insns` in the object's byte order. References to maps and externs are listed in `patches`: their
 * immediates are for the loader to fill in. `insns` and `patches` may be NULL with size 0, to learn the counts only.
 *
 * Result: `CORELO_CODE_OK`; `CORELO_CODE_SPACE` where either buffer is too small, with the counts needed stored and
 * nothing written; `CORELO_CODE_LINK`, `CORELO_CODE_MEMORY`, `CORELO_CODE_NOT_FOUND`, `CORELO_CODE_ARGUMENT`.
 */
corelo_code corelo_link(corelo_prepared *prepared,
                        uintptr_t program,
                        uint64_t *insns,
                        uintptr_t insns_size,
                        uintptr_t *insn_count,
                        corelo_patch *patches,
                        uintptr_t patches_size,
                        uintptr_t *patch_count,
                        corelo_error *error);

/**
 * How many maps the object has. NULL has none.
 */
uintptr_t corelo_map_count(const corelo_prepared *prepared);

/**
 * What the map numbered `map` (from 0) is.
 *
 * Result: `CORELO_CODE_OK`, `CORELO_CODE_NOT_FOUND`, `CORELO_CODE_ARGUMENT`.
 */
corelo_code corelo_map_info(const corelo_prepared *prepared, uintptr_t map, corelo_map_spec *info, corelo_error *error);

/**
 * Calls `each` with every CO-RE relocation of the object, in the order of its records.
 *
 * Result: `CORELO_CODE_OK`, also where `each` ended it; `CORELO_CODE_ARGUMENT`.
 */
corelo_code corelo_relocations(const corelo_prepared *prepared,
                               corelo_each_relocation each,
                               void *context,
                               corelo_error *error);

// For a firmware to define, if it wants to; libcorelo_core.a alone calls it. It must not return.
#if defined(__GNUC__)
__attribute__((noreturn))
#endif
void corelo_panic(const char *text, size_t size);

#ifndef CORELO_CORE_ONLY

// ---- level (b): loader ----

/**
 * An object that is loaded, or is to be.
 */
typedef struct corelo_loader corelo_loader;

/**
 * The reader of one ring buffer. It holds the map by itself, so it may outlive the loader that it came from.
 */
typedef struct corelo_ring corelo_ring;

/**
 * How an object is opened. All zero but `size` is a fine choice, and so is NULL instead of the whole.
 */
typedef struct {
  /**
   * `sizeof(corelo_options)`: no more is read, and what lies beyond is taken as zero.
   */
  uintptr_t size;
  /**
   * The file with the kernel's BTF (raw, or an ELF file with a `.BTF` section), which every `corelo_load` reads; NULL for
   * the running kernel's, which is opened only for an object that asks for it.
   */
  const char *btf_path;
  /**
   * The object's name, for the maps of its global data; NULL for the file's name without its ending.
   */
  const char *name;
  /**
   * Where maps that ask for it are pinned; NULL for /sys/fs/bpf.
   */
  const char *pin_root;
  /**
   * Memory for all that the loader works out, until `corelo_close`; NULL to let it be allocated. A shortage is
   * `CORELO_CODE_MEMORY`.
   */
  uint8_t *memory;
  /**
   * Bytes of it.
   */
  uintptr_t memory_size;
  /**
   * Programs not to load: their names with commas between; NULL for none. One that the object does not have is
   * `CORELO_CODE_NOT_FOUND`.
   */
  const char *skip;
  /**
   * Whether RLIMIT_MEMLOCK is left alone even where an old kernel refuses for its sake.
   */
  bool keep_memlock;
} corelo_options;

/**
 * What is in the kernel, and what it took: all 0 before `corelo_load`.
 */
typedef struct {
  /**
   * Maps created.
   */
  uint32_t maps;
  /**
   * Programs loaded.
   */
  uint32_t programs;
  /**
   * Programs attached.
   */
  uint32_t links;
  /**
   * CO-RE relocations that got a value, in the programs loaded.
   */
  uint32_t patched;
  /**
   * CO-RE relocations that were poisoned, in the programs loaded.
   */
  uint32_t poisoned;
  /**
   * Bytes of the arena.
   */
  uintptr_t arena_bytes;
  /**
   * The most that was ever in use of them.
   */
  uintptr_t arena_used;
} corelo_loader_summary;

/**
 * A map in the kernel: its sizes as lookups and updates take them.
 */
typedef struct {
  /**
   * The number of the map, for the other calls.
   */
  uint32_t number;
  /**
   * Its descriptor. The loader keeps it; duplicate it to have one for longer.
   */
  int fd;
  /**
   * `enum bpf_map_type`
   */
  uint32_t map_type;
  /**
   * How many entries it can hold.
   */
  uint32_t max_entries;
  /**
   * Bytes of a key.
   */
  uintptr_t key_size;
  /**
   * Bytes of a value; in per-CPU maps those of all possible CPUs, each rounded up to a multiple of 8.
   */
  uintptr_t value_size;
} corelo_map;

/**
 * Called with each record, whose bytes are the kernel's and are gone when it returns. Anything but 0 ends the call that
 * reads; that record counts as read.
 */
typedef int (*corelo_each_record)(void *context, const uint8_t *data, uintptr_t size);

/**
 * Reads the object in a file, for `corelo_load` to load: nothing of it is looked at yet. `corelo_close` ends what is stored
 * in `*loader`.
 *
 * Result: `CORELO_CODE_OK`, `CORELO_CODE_SYSTEM`, `CORELO_CODE_NOT_FOUND`, `CORELO_CODE_ARGUMENT`.
 */
corelo_code corelo_open(const char *path,
                        const corelo_options *options,
                        corelo_loader **loader,
                        corelo_error *error);

/**
 * As `corelo_open`, with an object that is in memory already. It is copied.
 */
corelo_code corelo_open_memory(const uint8_t *object,
                               uintptr_t object_size,
                               const corelo_options *options,
                               corelo_loader **loader,
                               corelo_error *error);

/**
 * Ends a loader: links are detached, programs and maps closed (pinned ones stay), memory is freed. NULL is nothing.
 */
void corelo_close(corelo_loader *loader);

/**
 * Makes the object ready (every relocation is decided), creates the maps and loads the programs. On failure nothing is left
 * in the kernel, and it may be tried again.
 *
 * Result: `CORELO_CODE_OK`, `CORELO_CODE_OBJECT`, `CORELO_CODE_KERNEL_BTF`, `CORELO_CODE_NEEDS_BTF`,
 * `CORELO_CODE_BYTE_ORDER`, `CORELO_CODE_MEMORY`, `CORELO_CODE_VERIFIER` (see `corelo_log`), `CORELO_CODE_SYSTEM`,
 * `CORELO_CODE_LINK`, `CORELO_CODE_NOT_FOUND`, `CORELO_CODE_STATE` where it is loaded, `CORELO_CODE_ARGUMENT`.
 */
corelo_code corelo_load(corelo_loader *handle,
                        corelo_error *error);

/**
 * Attaches loaded programs as their sections say, and registers struct_ops tables: all of them, or the program called
 * `program`. Of all, those whose section names nothing to attach to by itself (networks, cgroups, sockets) are left out; and
 * those that are attached already always are. `count` may be NULL; it gets the number of programs and tables attached. On
 * failure none of this call stays attached.
 *
 * Result: `CORELO_CODE_OK`, `CORELO_CODE_ATTACH`, `CORELO_CODE_NOT_FOUND` (also for a program that is not loaded),
 * `CORELO_CODE_STATE`, `CORELO_CODE_ARGUMENT`.
 */
corelo_code corelo_attach(corelo_loader *handle,
                          const char *program,
                          uintptr_t *count,
                          corelo_error *error);

/**
 * Detaches all programs. They stay loaded, and their maps too.
 *
 * Result: `CORELO_CODE_OK`, also where nothing is loaded; `CORELO_CODE_ARGUMENT`.
 */
corelo_code corelo_detach(corelo_loader *handle, corelo_error *error);

/**
 * What is in the kernel now.
 *
 * Result: `CORELO_CODE_OK`, `CORELO_CODE_ARGUMENT`.
 */
corelo_code corelo_summary(corelo_loader *handle, corelo_loader_summary *summary, corelo_error *error);

/**
 * How many records the object's programs found no room for in their rings, by their own count: in a map called `lost`, an
 * array (per CPU or not) of one 64-bit number. The kernel itself counts nothing of a ring buffer; how full one was found
 * says `corelo_ring_fill`.
 *
 * Result: `CORELO_CODE_OK`, `CORELO_CODE_NOT_FOUND` where the object has no such map, `CORELO_CODE_SYSTEM`,
 * `CORELO_CODE_STATE`, `CORELO_CODE_ARGUMENT`.
 */
corelo_code corelo_lost(corelo_loader *handle,
                        uint64_t *count,
                        corelo_error *error);

/**
 * The verifier's log of the last `corelo_load` that ended in `CORELO_CODE_VERIFIER`: its tail, as far as it fits, with
 * a NUL in `text`. The result is the length of the whole log, 0 where there is none.
 */
uintptr_t corelo_log(corelo_loader *handle, char *text, uintptr_t text_size);

/**
 * Finds a loaded map by its name in the source (of global data: `.bss`, `.data`, `.rodata`).
 *
 * Result: `CORELO_CODE_OK`, `CORELO_CODE_NOT_FOUND`, `CORELO_CODE_STATE`, `CORELO_CODE_ARGUMENT`.
 */
corelo_code corelo_map_find(corelo_loader *handle, const char *name, corelo_map *map, corelo_error *error);

/**
 * Reads the value of a key. Sizes must be those of `corelo_map_find`.
 *
 * Result: `CORELO_CODE_OK`, `CORELO_CODE_NOT_FOUND` where there is no such key, `CORELO_CODE_SYSTEM`,
 * `CORELO_CODE_STATE`, `CORELO_CODE_ARGUMENT`.
 */
corelo_code corelo_map_lookup(corelo_loader *handle,
                              uint32_t number,
                              const uint8_t *key,
                              uintptr_t key_size,
                              uint8_t *value,
                              uintptr_t value_size,
                              corelo_error *error);

/**
 * Writes the value of a key. `flags` are BPF_ANY (0), BPF_NOEXIST (1), BPF_EXIST (2).
 *
 * Result: as `corelo_map_lookup`.
 */
corelo_code corelo_map_update(corelo_loader *handle,
                              uint32_t number,
                              const uint8_t *key,
                              uintptr_t key_size,
                              const uint8_t *value,
                              uintptr_t value_size,
                              uint64_t flags,
                              corelo_error *error);

/**
 * Removes a key.
 *
 * Result: as `corelo_map_lookup`.
 */
corelo_code corelo_map_delete(corelo_loader *handle,
                              uint32_t number,
                              const uint8_t *key,
                              uintptr_t key_size,
                              corelo_error *error);

/**
 * The key after `key` in `next`, or the first where `key` is NULL. Both have the map's key size.
 *
 * Result: `CORELO_CODE_NOT_FOUND` behind the last; else as `corelo_map_lookup`.
 */
corelo_code corelo_map_next_key(corelo_loader *handle,
                                uint32_t number,
                                const uint8_t *key,
                                uint8_t *next,
                                uintptr_t key_size,
                                corelo_error *error);

/**
 * Opens the ring buffer map of a loaded object by its name. `corelo_ring_close` ends it. There is to be one reader of a
 * ring.
 *
 * Result: `CORELO_CODE_OK`, `CORELO_CODE_NOT_FOUND`, `CORELO_CODE_SYSTEM`, `CORELO_CODE_STATE`, `CORELO_CODE_ARGUMENT`.
 */
corelo_code corelo_ring_open(corelo_loader *handle, const char *map, corelo_ring **ring, corelo_error *error);

/**
 * Ends a ring. NULL is nothing.
 */
void corelo_ring_close(corelo_ring *ring);

/**
 * A descriptor that is readable while there are records, for the caller's own poll(2) or epoll(7); the ring keeps it.
 * -1 for NULL.
 */
int corelo_ring_fd(const corelo_ring *ring);

/**
 * Reads all complete records, after waiting for the first at most `timeout_ms` milliseconds (0: not at all; negative:
 * for ever). A signal ends the wait early. `count` may be NULL; it gets the number of records read.
 *
 * Result: `CORELO_CODE_OK`, also without any record; `CORELO_CODE_SYSTEM`, `CORELO_CODE_ARGUMENT`.
 */
corelo_code corelo_ring_poll(corelo_ring *ring,
                             int timeout_ms,
                             corelo_each_record each,
                             void *context,
                             uintptr_t *count,
                             corelo_error *error);

/**
 * How full the ring was found: `most_unread` gets the most bytes that ever waited to be read, `times_full` how many times
 * a record as large as the largest seen would have found no room. Either may be NULL.
 *
 * Result: `CORELO_CODE_OK`, `CORELO_CODE_ARGUMENT`.
 */
corelo_code corelo_ring_fill(const corelo_ring *ring,
                             uint32_t *most_unread,
                             uint32_t *times_full,
                             corelo_error *error);

#endif // CORELO_CORE_ONLY

#ifdef __cplusplus
}
#endif

#endif // CORELO_H
