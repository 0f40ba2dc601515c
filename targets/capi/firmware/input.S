// SPDX-License-Identifier: MIT OR Apache-2.0
// The object and the kernel's BTF, as they would lie in flash; the paths come from the command line (-DOBJECT=... -DBTF=...).
    .section .input, "a"
    .balign 8
    .global object_start, object_end, btf_start, btf_end
object_start:
    .incbin OBJECT
object_end:
    .balign 8
btf_start:
    .incbin BTF
btf_end:
