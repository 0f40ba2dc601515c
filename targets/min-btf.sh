#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Makes what targets/ci-qemu.sh needs for a kernel without BTF and what lies in the repository, so that nothing of 620 MB has to be
# fetched there: boot/KERNEL.btf, the types that the object of 30 programs and the monitor ask for, and boot/KERNEL.build, the
# release and build that they are of, as that kernel says when it is booted.
#
#     targets/min-btf.sh KERNEL [BTF]       BTF: of that build; made of Debian's -dbg package where it is not given (pahole)

set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/kernels.sh"
[ $# -ge 1 ] && [ $# -le 2 ] || { sed -n '/^#     targets/s/^# *//p' "$0" >&2 && exit 2; }
kernel=$1
btf=${2:-$(kernel_btf "$kernel")}
said=$("$here/boot.sh" "$kernel" --do info)
build=$(sed -n 's/^CORELO-INFO build=//p' <<<"$said")
[ -n "$build" ] || { echo "min-btf.sh: $kernel does not say what it is" >&2 && exit 1; }
cargo run -q --locked --manifest-path "$here/../Cargo.toml" -p corelo -- min-btf "$here/../tests/fixtures/many_progs-el.o" \
    "$here/agent/bpf/exec_monitor.bpf.o" --btf "$btf" -o "$here/boot/$kernel.btf"
echo "$build" >"$here/boot/$kernel.build"
echo "$kernel: $(stat -c %s "$here/boot/$kernel.btf") bytes, $build"
