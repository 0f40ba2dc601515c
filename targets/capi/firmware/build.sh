#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Builds the firmware for a Cortex-M4 (thumbv7em-none-eabihf) with arm-none-eabi-gcc and libcorelo_core.a, and prints
#     firmware=PATH
#     text_rodata_bytes=N        .text and .rodata: what corelo-core, its C interface and this program cost in flash
#
#     [CORELO_FIRMWARE=small|full] targets/capi/firmware/build.sh [OBJECT BTF]     default: small, fixtures core_fields
#
# Exit: 0 built, 1 the build failed, 126 something needed is missing.

set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
workspace=$here/../../..
object=${1:-$workspace/tests/fixtures/core_fields-el.o}
btf=${2:-$workspace/tests/fixtures/core_fields-target-el.btf}
target_dir=${CARGO_TARGET_DIR:-$workspace/target}
export CARGO_TARGET_DIR=$target_dir

if ! command -v arm-none-eabi-gcc >/dev/null; then
    [ "$(id -u)" = 0 ] || { echo "build.sh: arm-none-eabi-gcc is not installed (Debian package: gcc-arm-none-eabi)" >&2; exit 126; }
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends gcc-arm-none-eabi >/dev/null
fi
# Debian's compiler builds core itself, for size (heap sort instead of quick sort: 17 KB of this program). rustup's core is built
# for speed.
export CORELO_TOOLCHAIN=${CORELO_TOOLCHAIN:-debian}
options=()
[ "$CORELO_TOOLCHAIN" = debian ] && options+=(-Zbuild-std-features=optimize_for_size,compiler-builtins-mem)
# The library is built without words for errors (codes say all): 11 KB. CORELO_FIRMWARE=full has them, and the whole interface.
defines=()
if [ "${CORELO_FIRMWARE:-small}" = small ]; then
    options+=(--no-default-features)
    defines+=(-DPREPARE_ONLY)
fi
library=$("$here/../../build.sh" thumbv7em-none-eabihf -p corelo-freestanding \
    --manifest-path "$workspace/targets/freestanding/Cargo.toml" -- "${options[@]}" | tail -n 1)

out=$target_dir/thumbv7em-none-eabihf/firmware-${CORELO_FIRMWARE:-small}.elf
arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16 -std=c11 -Os -Wall -Wextra -Werror \
    -ffreestanding -fno-tree-loop-distribute-patterns -ffunction-sections -fdata-sections -nostdlib -Wl,--gc-sections -Wl,-z,noexecstack -Wl,-T,"$here/link.ld" "${defines[@]}" \
    -DOBJECT="\"$object\"" -DBTF="\"$btf\"" -o "$out" "$here/main.c" "$here/input.S" "$library"
echo "firmware=$out"
arm-none-eabi-size -A "$out" | awk '$1 == ".text" || $1 == ".rodata" { sum += $2 }
    END { if (!sum) exit 1; print "text_rodata_bytes=" sum }'
