#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Boots a Debian kernel in QEMU with nothing but the given files and commands, and ends with the commands' exit code.
#
#     targets/boot.sh KERNEL [--file SRC:DST]... [--run CMD | --bg CMD | --do DIRECTIVE]... [options]
#
# KERNEL       ARCH-SERIES: armhf, arm64, arm64-16k, amd64, riscv64, s390x; 5.10, 6.1, 6.12, 7.2 (see kernels.sh)
# --file S:D   copies the file S to the absolute path D (mode kept)
# --run CMD    runs CMD: words split at spaces, no shell; its exit code, peak RSS and time are printed
# --bg CMD     starts CMD; it runs beside what follows and is awaited at the end
# --do D       a directive of the init: info, "exec N", exec-until-done, "sleep MS", "cat FILE", "insmod FILE" and others
#              (boot/init.c)
# --mem M      MiB of memory (default 512; armhf 256)
# --timeout S  seconds until the emulator is stopped (default 180)
# --log FILE   the console, as it came
# --append A   more kernel command line
# --verbose    kernel messages too
#
# Exit: that of the first command that failed, else 0; 124 time ran out, 125 the kernel ended without the closing line, 126
# something needed is missing, 2 bad usage.
#
# The environment: CORELO_CACHE (default ~/.cache/corelo), CORELO_QEMU_ACCEL (default tcg: emulated, the same
# everywhere; kvm where the host has a working one).

set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/kernels.sh"

usage() {
    sed -n '/^#     targets/,/^$/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

missing() {
    echo "boot.sh: $*" >&2
    exit 126
}

[ $# -gt 0 ] || usage
kernel=$1
shift
files=() list=() mem='' timeout=180 log='' append='' loglevel='quiet loglevel=3'
while [ $# -gt 0 ]; do
    [ "$1" = --verbose ] || [ $# -ge 2 ] || usage
    case $1 in
    --file) files+=("$2") && shift ;;
    --run) list+=("$2") && shift ;;
    --bg) list+=("&$2") && shift ;;
    --do) list+=("@$2") && shift ;;
    --mem) mem=$2 && shift ;;
    --timeout) timeout=$2 && shift ;;
    --log) log=$2 && shift ;;
    --append) append=$2 && shift ;;
    --verbose) loglevel='loglevel=7' ;;
    *) usage ;;
    esac
    shift
done

# Package and command per architecture; the init's compiler is the one that builds the Rust programs' links.
arch=$(kernel_arch "$kernel")
case $arch in
amd64) qemu=qemu-system-x86_64 qemu_package=qemu-system-x86 cc=x86_64-linux-gnu-gcc cc_package=gcc ;;
arm64) qemu=qemu-system-aarch64 qemu_package=qemu-system-arm cc=aarch64-linux-gnu-gcc cc_package=gcc-aarch64-linux-gnu ;;
armhf) qemu=qemu-system-arm qemu_package=qemu-system-arm cc=arm-linux-gnueabihf-gcc cc_package=gcc-arm-linux-gnueabihf ;;
riscv64) qemu=qemu-system-riscv64 qemu_package="qemu-system-misc opensbi" cc=riscv64-linux-gnu-gcc cc_package=gcc-riscv64-linux-gnu ;;
s390x) qemu=qemu-system-s390x qemu_package=qemu-system-misc cc=s390x-linux-gnu-gcc cc_package=gcc-s390x-linux-gnu ;;
*) missing "no emulator is known for '$arch'" ;;
esac
case $arch in
amd64) machine=(-M q35) console=ttyS0 default_mem=512 ;;
arm64) machine=(-M virt -cpu cortex-a57) console=ttyAMA0 default_mem=512 ;;
armhf) machine=(-M "virt,highmem=off" -cpu cortex-a15) console=ttyAMA0 default_mem=256 ;;
riscv64) machine=(-M virt) console=ttyS0 default_mem=512 ;;
s390x) machine=(-M s390-ccw-virtio) console=ttysclp0 default_mem=512 ;;
esac
# The older core has no pages of 16 KiB.
[[ $kernel == arm64-16k-* ]] && machine=(-M virt -cpu cortex-a76)

need() {
    command -v "$1" >/dev/null && return
    [ "$(id -u)" = 0 ] || missing "$1 is not installed (Debian package: $2)"
    echo "boot.sh: installing $2" >&2
    # shellcheck disable=SC2086  # $2 may name several packages
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $2 >/dev/null ||
        { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $2 >/dev/null; } ||
        missing "$2 could not be installed"
}
need "$qemu" "$qemu_package"
need "$cc" "$cc_package"
need cpio cpio

image=$(kernel_image "$kernel") || missing "no kernel for $kernel"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,dev,proc,sys,run,tmp}
"$cc" -static -Os -s -Wall -Wextra -Werror -o "$root/init" "$here/boot/init.c" || missing "the init does not compile with $cc"
ln -s /init "$root/bin/true"
ln -s /init "$root/bin/false"
printf '%s\n' "${list[@]+"${list[@]}"}" >"$root/run.list"
for file in "${files[@]+"${files[@]}"}"; do
    source=${file%%:*} target=${file#*:}
    [ -f "$source" ] || missing "no file $source"
    mkdir -p "$root/$(dirname "$target")"
    cp -L --remove-destination "$source" "$root/$target"
done
(cd "$root" && find . -print0 | cpio --quiet --null -o -H newc -R 0:0 | gzip -1) >"$work/initramfs.gz"

accel=${CORELO_QEMU_ACCEL:-tcg}
if [ "$arch" = amd64 ]; then
    # arch-capabilities: a host that is itself a guest may refuse the register.
    case $accel in
    kvm) machine+=(-cpu "host,arch-capabilities=off") ;;
    *) machine+=(-cpu max) ;;
    esac
fi

started=$(date +%s%N)
timeout --foreground -k 5 "$timeout" "$qemu" "${machine[@]}" -accel "$accel" -m "${mem:-$default_mem}" -smp 1 \
    -display none -nodefaults -no-user-config -no-reboot -serial stdio -monitor none -net none \
    -kernel "$image" -initrd "$work/initramfs.gz" \
    -append "console=$console $loglevel panic=-1 $append" </dev/null >"$work/console" 2>"$work/qemu.err"
ended=$?
milliseconds=$((($(date +%s%N) - started) / 1000000))

[ -z "$log" ] || cp "$work/console" "$log"
tr -d '\r' <"$work/console"
[ -s "$work/qemu.err" ] && sed 's/^/qemu: /' "$work/qemu.err" >&2
code=$(tr -d '\r' <"$work/console" | sed -n 's/^.*CORELO-EXIT: \([0-9][0-9]*\)$/\1/p' | tail -n 1)
echo "CORELO-BOOT kernel=$kernel image=$(basename "$image") accel=$accel mem_mib=${mem:-$default_mem} ms=$milliseconds exit=${code:-none}"
[ -n "$code" ] && exit "$code"
[ "$ended" = 124 ] && exit 124
exit 125
