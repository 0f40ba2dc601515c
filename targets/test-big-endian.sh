#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Runs the tests of core on a big-endian machine: built for s390x with the standard library of Debian's compiler (rustc-web and
# rust-web-src), run by qemu-user. Objects and kernels of both byte orders are read there as anywhere, and where the test corpus
# is, every recorded answer of libbpf's is compared again. What needs bpf(2) is left out, as the kernel below is this machine's,
# and so is making minimal BTF for the corpus, which takes minutes there.
#
#     targets/test-big-endian.sh
#
# Exit: that of the tests, 1 where they were none, 126 something needed is missing.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

install() {
    [ "$(id -u)" = 0 ] || { echo "test-big-endian.sh: not installed: $*" >&2; exit 126; }
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq install -y --no-install-recommends "$@" >/dev/null 2>&1 ||
        { apt-get -qq update && apt-get -qq install -y --no-install-recommends "$@" >/dev/null; }
}
command -v s390x-linux-gnu-gcc >/dev/null || install gcc-s390x-linux-gnu libc6-dev-s390x-cross
command -v qemu-s390x >/dev/null || install qemu-user
# /usr/bin/cargo and /usr/bin/rustc: rustup's, if there are any, lie elsewhere.
[ -d /usr/lib/rustlib/src/rust/library ] && [ -x /usr/bin/cargo ] || install rustc-web cargo-web rust-web-src

export RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 RUSTFLAGS='-C target-feature=+crt-static'
export CARGO_TARGET_S390X_UNKNOWN_LINUX_GNU_LINKER=s390x-linux-gnu-gcc
export CARGO_TARGET_S390X_UNKNOWN_LINUX_GNU_RUNNER=qemu-s390x
# Absolute, as tests run in their own folder.
export CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")/big-endian
# The kernel is not to be required of an emulated program.
unset CORELO_REQUIRE_KERNEL
test=("${CORELO_CARGO:-/usr/bin/cargo}" test --locked -Zbuild-std=std,panic_unwind,test --target s390x-unknown-linux-gnu)

log=$(mktemp)
trap 'rm -f "$log"' EXIT
"${test[@]}" -p corelo-core --lib | tee "$log"
"${test[@]}" -p corelo-tests --no-fail-fast --test btf_pass --test cases --test core_rules --test core_insn_rules \
    --test corpus_core --test arena_budget --test btf_rebase --test btf_sanitize --test min_btf --test module_targets \
    --test target_32_bit --test support --test warm_start --test hostile -- --skip the_kernel_takes --skip corpus_objects_relocate | tee -a "$log"
awk '/^test result: ok/ { passed += $4 } END { print passed + 0 " tests passed"; exit passed < 100 }' "$log"
