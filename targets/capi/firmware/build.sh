#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Builds the firmware for a Cortex-M4 (thumbv7em-none-eabihf) with arm-none-eabi-gcc and libcorelo_core.a, and prints
#     firmware=PATH
#     text_rodata_bytes=N        .text and .rodata: what corelo-core, its C interface and this program cost in flash
#
#     targets/capi/firmware/build.sh [OBJECT BTF]     default: fixtures core_fields
#
# The library is built without words for errors (codes say all); CORELO_FIRMWARE_FEATURES= builds it with them.
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
library=$("$here/../../build.sh" thumbv7em-none-eabihf -p corelo-freestanding \
    --manifest-path "$workspace/targets/freestanding/Cargo.toml" -- ${CORELO_FIRMWARE_FEATURES---no-default-features} | tail -n 1)

out=$target_dir/thumbv7em-none-eabihf/firmware.elf
arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16 -std=c11 -Os -Wall -Wextra -Werror \
    -ffreestanding -ffunction-sections -fdata-sections -nostdlib -Wl,--gc-sections -Wl,-T,"$here/link.ld" \
    -DOBJECT="\"$object\"" -DBTF="\"$btf\"" -o "$out" "$here/main.c" "$here/input.S" "$library"
echo "firmware=$out"
arm-none-eabi-size -A "$out" | awk '$1 == ".text" || $1 == ".rodata" { sum += $2 } END { print "text_rodata_bytes=" sum }'
