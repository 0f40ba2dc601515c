// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A firmware for a Cortex-M4 without an operating system that makes a BPF object ready with level (a) of the C interface: what
// corelo-core costs in flash is this program's .text and .rodata (the object and the kernel's BTF are in a section of their own).
// With PREPARE_ONLY it does just that; else it also asks for a budget and reports, to show the rest of the interface.
// It runs in QEMU (-M mps2-an386 -semihosting) and prints what became of every program, then ends with exit code 0 or 1.

#define CORELO_CORE_ONLY
#include "../corelo.h"

// The inputs, put in by the assembler; see input.S.
extern const uint8_t object_start[], object_end[], btf_start[], btf_end[];

static uint64_t memory[64 * 1024 / 8];
static uint64_t insns[1024];
static corelo_patch patches[64];

// ---- memory: the shortest there is, as a C library for small devices has it; the compiler's own in the library are weak ----

void *memmove(void *to, const void *from, size_t size) {
    uint8_t *target = to;
    const uint8_t *source = from;
    if (target <= source)
        for (size_t i = 0; i < size; i++) target[i] = source[i];
    else
        for (size_t i = size; i-- > 0;) target[i] = source[i];
    return to;
}

void *memset(void *to, int byte, size_t size) {
    for (uint8_t *target = to; size-- > 0;) *target++ = (uint8_t)byte;
    return to;
}

int memcmp(const void *one, const void *other, size_t size) {
    const uint8_t *a = one, *b = other;
    for (; size > 0; size--, a++, b++)
        if (*a != *b) return *a - *b;
    return 0;
}

#define ALIAS(of) __attribute__((alias(#of)))
void *memcpy(void *to, const void *from, size_t size) ALIAS(memmove);
int bcmp(const void *one, const void *other, size_t size) ALIAS(memcmp);
// What the ARM EABI calls them.
void *__aeabi_memcpy(void *to, const void *from, size_t size) ALIAS(memmove);
void *__aeabi_memcpy4(void *to, const void *from, size_t size) ALIAS(memmove);
void *__aeabi_memcpy8(void *to, const void *from, size_t size) ALIAS(memmove);
void *__aeabi_memmove(void *to, const void *from, size_t size) ALIAS(memmove);
void *__aeabi_memmove4(void *to, const void *from, size_t size) ALIAS(memmove);
void *__aeabi_memmove8(void *to, const void *from, size_t size) ALIAS(memmove);
void __aeabi_memset(void *to, size_t size, int byte) { memset(to, byte, size); }
void __aeabi_memset4(void *to, size_t size, int byte) __attribute__((alias("__aeabi_memset")));
void __aeabi_memset8(void *to, size_t size, int byte) __attribute__((alias("__aeabi_memset")));
void __aeabi_memclr(void *to, size_t size) { memset(to, 0, size); }
void __aeabi_memclr4(void *to, size_t size) __attribute__((alias("__aeabi_memclr")));
void __aeabi_memclr8(void *to, size_t size) __attribute__((alias("__aeabi_memclr")));

// ---- output and exit, by semihosting ----

static int semihost(int operation, const void *argument) {
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static void print(const char *text) { semihost(4 /* SYS_WRITE0 */, text); }

static void print_number(uint32_t number) {
    char text[11], *at = text + sizeof text;
    *--at = 0;
    do *--at = (char)('0' + number % 10);
    while (number /= 10);
    print(at);
}

#ifndef PREPARE_ONLY
static void print_text(corelo_text text) {
    char one[2] = {0, 0};
    for (size_t i = 0; i < text.size; i++) {
        one[0] = text.data[i];
        print(one);
    }
}
#endif

static _Noreturn void leave(int code) {
    const uint32_t block[2] = {0x20026 /* ADP_Stopped_ApplicationExit */, (uint32_t)code};
    semihost(0x20 /* SYS_EXIT_EXTENDED */, block);
    for (;;) {
    }
}

// The library's own would trap: this one shows how a firmware puts its own in place.
_Noreturn void corelo_panic(const char *text, size_t size) {
    (void)size;
    print("panic: ");
    print(text);
    print("\n");
    leave(3);
}

static void check(corelo_code code, const corelo_error *error) {
    if (code == CORELO_CODE_OK) return;
    print("failed: ");
    print(error->text);
    print("\n");
    leave(1);
}

#ifndef PREPARE_ONLY
static int count(void *context, const corelo_relocation *relocation) {
    ((uint32_t *)context)[relocation->status]++;
    return 0;
}
#endif

static void run(void) {
    char text[160];
    corelo_error error = {.text = text, .text_size = sizeof text};
    corelo_prepared *prepared;
    size_t needed = 0;

    const size_t object_size = (size_t)(object_end - object_start), btf_size = (size_t)(btf_end - btf_start);
#ifdef PREPARE_ONLY
    needed = sizeof memory;
#else
    check(corelo_budget(object_start, object_size, btf_start, btf_size, (uint8_t *)memory, sizeof memory, &needed, &error), &error);
    print("memory ");
    print_number((uint32_t)needed);
#endif
    // With what the budget says, and not a byte more.
    check(corelo_prepare(object_start, object_size, btf_start, btf_size, (uint8_t *)memory, needed, &prepared, &error), &error);

    uint32_t by_status[3] = {0, 0, 0}, insn_total = 0;
    const size_t programs = corelo_program_count(prepared);
    for (size_t i = 0; i < programs; i++) {
        size_t insn_count, patch_count;
        check(corelo_link(prepared, i, insns, sizeof insns / sizeof *insns, &insn_count, patches,
                          sizeof patches / sizeof *patches, &patch_count, &error),
              &error);
        insn_total += insn_count;
    }
#ifdef PREPARE_ONLY
    (void)by_status;
    print_number(insn_total);
#else
    check(corelo_relocations(prepared, count, by_status, &error), &error);
    print(" programs ");
    print_number((uint32_t)programs);
    print(" insns ");
    print_number(insn_total);
    print(" patched ");
    print_number(by_status[CORELO_STATUS_PATCHED]);
    print(" poisoned ");
    print_number(by_status[CORELO_STATUS_POISONED]);
    print(" failed ");
    print_number(by_status[CORELO_STATUS_FAILED]);
    corelo_program_spec info;
    check(corelo_program_info(prepared, 0, &info, &error), &error);
    print(" first ");
    print_text(info.section);
    print("\n");
    // One byte fewer must be refused in words.
    if (corelo_prepare(object_start, object_size, btf_start, btf_size, (uint8_t *)memory, 64, &prepared, &error) !=
        CORELO_CODE_MEMORY)
        leave(2);
    print("refused: ");
    print(text);
    print("\n");
#endif
    leave(0);
}

// ---- start ----

extern uint32_t stack_top[], bss_start[], bss_end[];

void start(void) {
    for (uint32_t *word = bss_start; word < bss_end; word++) *word = 0;
    run();
}

static void fault(void) {
    print("fault\n");
    leave(4);
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    stack_top, (void *)start, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault,
};
