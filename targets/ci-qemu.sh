#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# The `corelo` program, built as it ships to devices, on the kernels that devices run: builds it static for each architecture,
# boots each kernel, and there
#   run       runs `corelo run --for 5 --json` while processes start and end, and looks for their events;
#   load      runs `corelo load` on an object of 30 programs (exit 0);
#   no-btf    where the kernel has no BTF: `corelo run` without --btf says so in one line and exits 1.
# Every check prints its figures. The last line is `N passed, N failed, N skipped`; exit 0 when none failed.
#
#     targets/ci-qemu.sh [KERNEL]...        default: armhf-6.1 arm64-6.1 amd64-5.10 amd64-7.2
#
# The environment: CORELO_LIBC=gnu|musl (default musl), CORELO_BIN_ARMHF, CORELO_BIN_ARM64, CORELO_BIN_AMD64,
# CORELO_BIN_RISCV64, CORELO_BIN_S390X (a program built before, instead of building), CORELO_CORPUS (the test corpus),
# CORELO_REQUIRE_KERNEL=1 (what would be skipped fails), CORELO_QEMU_LOGS (a directory that keeps the consoles).

set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
workspace=$(dirname "$here")
. "$here/kernels.sh"

corpus=${CORELO_CORPUS:-$workspace/../shared/corpus}
fixtures=$workspace/tests/fixtures
logs=${CORELO_QEMU_LOGS:-$(mktemp -d)}
mkdir -p "$logs"
passed=0 failed=0 skipped=0

pass() {
    passed=$((passed + 1))
    echo "ok      $*"
}
fail() {
    failed=$((failed + 1))
    echo "FAILED  $*"
}
skip() {
    if [ "${CORELO_REQUIRE_KERNEL:-}" = 1 ]; then
        fail "$* (CORELO_REQUIRE_KERNEL=1)"
    else
        skipped=$((skipped + 1))
        echo "skipped $*"
    fi
}

# program ARCH: the path of a static `corelo` for it, built when first asked for.
program() {
    local arch=$1 libc=${CORELO_LIBC:-musl} target given built=$logs/program-$1
    given=CORELO_BIN_${arch^^}
    if [ -n "${!given:-}" ]; then
        echo "${!given}"
        return
    fi
    case $arch-$libc in
    armhf-gnu) target=armv7-unknown-linux-gnueabihf ;;
    armhf-musl) target=armv7-unknown-linux-musleabihf ;;
    arm64-*) target=aarch64-unknown-linux-$libc ;;
    amd64-*) target=x86_64-unknown-linux-$libc ;;
    riscv64-*) target=riscv64gc-unknown-linux-gnu ;;
    s390x-*) target=s390x-unknown-linux-gnu ;;
    esac
    [ -e "$built" ] || "$here/build.sh" "$target" -p corelo 2>"$logs/build-$arch.log" >"$built" || rm -f "$built"
    [ -e "$built" ] || return 1
    tail -n 1 "$built"
}

# figure NAME FILE: the number (or word) of "NAME": in the summary of a `corelo run --json`.
figure() {
    grep '"summary"' "$2" | tail -n 1 | grep -oE "\"$1\": *(\"[^\"]*\"|[0-9.]+|null)" | head -n 1 | sed 's/^[^:]*: *//; s/"//g'
}

# command_figure NUMBER KEY FILE: of the CORELO-CMD line of a command of the boot.
command_figure() {
    sed -n "s/^CORELO-CMD $1 .*\b$2=\([0-9]*\).*/\1/p" "$3" | head -n 1
}

check_kernel() {
    local kernel=$1 arch log program object btf='' options='' arguments=() commands=1 endian=el
    arch=$(kernel_arch "$kernel")
    log=$logs/$kernel.log
    [ "$arch" = s390x ] && endian=eb
    object=$fixtures/many_progs-$endian.o
    [ -e "$object" ] || {
        fail "$kernel: no $object"
        return
    }
    program=$(program "$arch") || {
        fail "$kernel: the program for $arch does not build:"
        tail -n 20 "$logs/build-$arch.log"
        return
    }

    # The 32-bit ARM kernels of Debian carry no BTF: it is shipped beside the program, as on a device.
    if [ "$arch" = armhf ]; then
        btf=$(find "$corpus/btf" -name "armhf-$(kernel_series "$kernel").*-from-dwarf.btf.zst" 2>/dev/null | head -n 1)
        if [ -z "$btf" ]; then
            skip "$kernel: no BTF for it under $corpus/btf"
            return
        fi
        zstd -qdf "$btf" -o "$logs/$kernel.btf" || {
            fail "$kernel: zstd does not unpack $btf"
            return
        }
        arguments+=(--file "$logs/$kernel.btf:/kernel.btf")
        options=' --btf /kernel.btf'
    fi

    arguments+=(--file "$program:/corelo" --file "$object:/$(basename "$object")" --do info)
    arguments+=(--bg "/corelo run --for 5 --json$options" --do exec-until-done)
    arguments+=(--run "/corelo load /$(basename "$object")$options")
    [ -n "$btf" ] && arguments+=(--run "/corelo run --for 1") && commands=3
    "$here/boot.sh" "$kernel" "${arguments[@]}" --timeout "${CORELO_QEMU_TIMEOUT:-240}" >"$log" 2>&1
    local ended=$? boot release
    boot=$(grep '^CORELO-BOOT' "$log" | tail -n 1 | sed -n 's/.*\bms=\([0-9]*\).*/\1/p')
    release=$(sed -n 's/^CORELO-INFO release=//p' "$log")
    if ! grep -q '^CORELO-EXIT' "$log"; then
        fail "$kernel: did not come to its end (boot.sh gave $ended after ${boot:-?} ms); the console's tail:"
        tail -n 25 "$log" | sed 's/^/        /'
        return
    fi

    # run: the processes that the init starts are called "true" and have process 1 as their parent. It starts about 15 a second
    # and goes on until the program has ended, so that 10 is far below what 5 seconds see.
    local code rss execs exits ours started
    code=$(command_figure 1 exit "$log") rss=$(command_figure 1 rss_kib "$log")
    execs=$(grep -cE '^\{.*"event": *"exec"' "$log")
    exits=$(grep -cE '^\{.*"event": *"exit"' "$log")
    ours=$(grep -E '"event": *"exec"' "$log" | grep -E '"ppid": *1[,}]' | grep -cE '"comm": *"true"')
    started=$(sed -n 's/^CORELO-INFO execs=//p' "$log")
    local line="$kernel run: release=$release exit=$code events=$((execs + exits)) exec=$execs exit_events=$exits of_init=$ours/$started"
    line+=" btf=$(figure btf_source "$log") arena_used=$(figure arena_used "$log") arena_bytes=$(figure arena_bytes "$log")"
    line+=" programs=$(figure programs "$log") patched=$(figure patched "$log") poisoned=$(figure poisoned "$log")"
    line+=" rss_kib=$rss program_bytes=$(stat -L -c %s "$program") boot_ms=$boot"
    if [ "$code" = 0 ] && [ "$ours" -ge 10 ] && [ "$exits" -ge 10 ] && [ -n "$(figure arena_used "$log")" ]; then
        pass "$line"
    else
        fail "$line"
        grep -v -E '^CORELO-INFO|"event"' "$log" | head -n 25 | sed 's/^/        /'
    fi

    # load
    code=$(command_figure 2 exit "$log")
    line="$kernel load $(basename "$object"): exit=$code ms=$(command_figure 2 ms "$log") rss_kib=$(command_figure 2 rss_kib "$log")"
    if [ "$code" = 0 ]; then
        pass "$line"
    else
        fail "$line"
        sed -n '/^CORELO-CMD 1 /,/^CORELO-CMD 2 /p' "$log" | tail -n 25 | sed 's/^/        /'
    fi

    # no-btf
    [ "$commands" = 3 ] || return 0
    local said
    code=$(command_figure 3 exit "$log")
    said=$(sed -n '/^CORELO-CMD 2 /,/^CORELO-CMD 3 /p' "$log" | grep -v -E '^CORELO-|^\[ *[0-9]+\.[0-9]+\]')
    line="$kernel no-btf: exit=$code lines=$(grep -c . <<<"$said") said: $said"
    if [ "$code" = 1 ] && [ "$(grep -c . <<<"$said")" = 1 ]; then pass "$line"; else fail "$line"; fi
}

command -v zstd >/dev/null || { [ "$(id -u)" = 0 ] && apt-get -qq install -y zstd >/dev/null; }
[ $# -gt 0 ] || set -- armhf-6.1 arm64-6.1 amd64-5.10 amd64-7.2
for kernel in "$@"; do
    check_kernel "$kernel"
done
echo "consoles: $logs"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
