// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Static probes of the init's short-lived processes, as sys/sdt.h makes them: a `nop`, and a note with where it is and where its
// arguments are, which the compiler spells as this machine's assembler does. `register` has numbers in registers; `operands` is at
// two places, in registers and after that in memory, and says the same at both; `guarded` has a semaphore and is passed only
// while that is raised. On 32-bit ARM `inthumb` is a probe in Thumb code.

#ifndef CORELO_PROBES_H
#define CORELO_PROBES_H

#include <stdint.h>

#if __SIZEOF_POINTER__ == 8
#define PROBE_ADDRESS ".8byte "
#else
#define PROBE_ADDRESS ".4byte "
#endif

#ifdef __s390x__
#define PROBE_NOP "nop 0"
#else
#define PROBE_NOP "nop"
#endif

// The kernel's uprobes on 32-bit ARM know no Thumb.
#ifdef __arm__
#define PROBE_CODE __attribute__((noipa, target("arm")))
#else
#define PROBE_CODE __attribute__((noipa))
#endif

asm(".pushsection .stapsdt.base, \"aR\"\n"
    ".hidden corelo_stapsdt_base\n"
    ".globl corelo_stapsdt_base\n"
    "corelo_stapsdt_base: .space 1\n"
    ".popsection");

// How many look at `guarded`: the kernel counts.
__attribute__((section(".probes"), used)) volatile uint16_t corelo_guarded_semaphore;

#define PROBE(name, semaphore, arguments, ...)                \
    asm volatile("990: " PROBE_NOP "\n"                       \
                 ".pushsection .note.stapsdt, \"\", %%note\n" \
                 ".balign 4\n"                                \
                 ".4byte 992f - 991f, 994f - 993f, 3\n"       \
                 "991: .asciz \"stapsdt\"\n"                  \
                 "992: .balign 4\n"                           \
                 "993: " PROBE_ADDRESS "990b\n"               \
                 PROBE_ADDRESS "corelo_stapsdt_base\n"        \
                 PROBE_ADDRESS semaphore "\n"                 \
                 ".asciz \"corelo_test\"\n"                   \
                 ".asciz \"" name "\"\n"                      \
                 ".asciz \"" arguments "\"\n"                 \
                 "994: .balign 4\n"                           \
                 ".popsection" : : __VA_ARGS__)

#define OPERANDS "-4@%[first] 1@%[byte] -2@%[small] 4@%[large] -4@%[constant] 8@%[word] 2@%[half]"
// `kind` is r or m. What `words` points to is in memory in both cases.
#define PASS(name, kind, first_, byte_, small_, large_)                                                                    \
    PROBE(name, "0", OPERANDS, [first] kind(first_), [byte] kind(byte_), [small] kind(small_), [large] kind(large_),       \
          [constant] "n"(-9), [word] "m"(words[1]), [half] "m"(*(const uint16_t *)words))

PROBE_CODE static void pass_operands(int first, uint8_t byte, int16_t small, uint32_t large, const uint64_t *words) {
    volatile int first_there = first;
    volatile uint8_t byte_there = byte;
    volatile int16_t small_there = small;
    volatile uint32_t large_there = large;
    PASS("register", "r", first, byte, small, large);
    PASS("operands", "r", first, byte, small, large);
    PASS("operands", "m", first_there, byte_there, small_there, large_there);
}

#ifdef __arm__
// What must not be attached to: the kernel would take the two instructions for one, and neither is any more.
__attribute__((noipa, target("thumb"))) static void pass_thumb(void) {
    asm volatile(".balign 4");
    PROBE("inthumb", "0", "", [none] "n"(0));
    asm volatile("mov r8, r8");
}
#endif

PROBE_CODE static void pass_probes(void) {
    static const uint64_t words[2] = {0x1122334455667788, 0x1a2b3c4d5e6f7081};
    pass_operands(-2, 254, -30000, 4000000000, words);
    if (corelo_guarded_semaphore > 0)
        PROBE("guarded", "corelo_guarded_semaphore", "", [none] "n"(0));
#ifdef __arm__
    pass_thumb();
#endif
}

#endif
