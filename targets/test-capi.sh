#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# The C interface, built and run: level (a) wants nothing but mem*, in a firmware for a Cortex-M4 it does the whole job in QEMU;
# the C agent runs on this machine, under valgrind without a leak, links statically for 32-bit ARM, and the header is fit for C
# and C++.
#
#     targets/test-capi.sh [--no-arm]
#
# Each line says what was checked. What cannot be checked here is skipped in words, and fails with CORELO_REQUIRE_KERNEL=1.

set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
workspace=$(dirname "$here")
target_dir=${CARGO_TARGET_DIR:-$workspace/target}
export CARGO_TARGET_DIR=$target_dir
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
pass() { echo "ok      $*"; }
fail() {
    failed=1
    echo "FAILED  $*"
}
skip() {
    if [ "${CORELO_REQUIRE_KERNEL:-}" = 1 ]; then fail "$* (CORELO_REQUIRE_KERNEL=1)"; else echo "skipped $*"; fi
}
object=$workspace/targets/agent/bpf/exec_monitor.bpf.o

# ---- the header ----
printf '#include "corelo.h"\nint main(void) { return (int)corelo_abi_version() - 1000; }\n' >"$work/header.c"
if cc -std=c99 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$here/capi" "$work/header.c" &&
    cc -x c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$here/capi" "$work/header.c" &&
    cc -std=c99 -DCORELO_CORE_ONLY -Wall -Wextra -Werror -fsyntax-only -I"$here/capi" "$work/header.c"; then
    pass "corelo.h compiles as C99 and as C++11"
else
    fail "corelo.h does not compile"
fi

# ---- level (a): all of it in one relocatable object; what is left undefined must be mem* ----
# Where binutils have a plugin of LLVM, their nm gives up on ARM's build attributes.
nm=$(command -v llvm-nm-19 || command -v llvm-nm || echo nm)
for target in x86_64-unknown-linux-gnu thumbv7em-none-eabihf; do
    case $target in
    x86_64*) prefix=x86_64-linux-gnu- ;;
    thumb*) prefix=arm-none-eabi- ;;
    esac
    if ! command -v "${prefix}ld" >/dev/null; then
        skip "level (a) for $target: no ${prefix}ld"
        continue
    fi
    # By build.sh, as rustup's compiler has a core for this machine alone.
    library=$("$here/build.sh" "$target" -p corelo-freestanding --manifest-path "$here/freestanding/Cargo.toml" 2>"$work/log" |
        tail -n 1)
    if ! [ -s "$library" ]; then
        fail "level (a) for $target does not build:"
        tail -n 20 "$work/log"
        continue
    fi
    exported=$($nm -g --defined-only "$library" 2>/dev/null | sed -n 's/.* [TW] \(corelo_[a-z_]*\)$/\1/p' | sort -u)
    roots=()
    for name in $exported; do roots+=(-u "$name"); done
    "${prefix}ld" -r --gc-sections "${roots[@]}" -o "$work/all.o" "$library" || fail "level (a) for $target does not link"
    $nm "$work/all.o" >"$work/symbols" && grep -q ' T corelo_prepare$' "$work/symbols" ||
        fail "level (a) for $target: $nm does not read it"
    wanted=$(awk '$1 == "U" { print $2 }' "$work/symbols" | sort -u)
    others=$(grep -vxE 'mem(cpy|move|set|cmp)|bcmp|' <<<"$wanted")
    allocators=$(grep -E '\b(__rust_(alloc|dealloc|realloc|no_alloc)|__rg_|malloc|calloc|free|realloc|mmap|brk|sbrk)' "$work/symbols" || true)
    if [ "$(wc -w <<<"$exported")" -ge 11 ] && [ -z "$others" ] && [ -z "$allocators" ]; then
        pass "level (a) for $target: $(wc -w <<<"$exported") functions, no allocator, wants: $(tr '\n' ' ' <<<"${wanted:-nothing}")"
    else
        fail "level (a) for $target: exported $exported; wants $others $allocators"
    fi
done

# ---- a firmware of level (a) on a Cortex-M4 ----
if command -v qemu-system-arm >/dev/null && CORELO_FIRMWARE=full "$here/capi/firmware/build.sh" >"$work/log" 2>&1; then
    image=$(sed -n 's/^firmware=//p' "$work/log")
    said=$(timeout 60 qemu-system-arm -M mps2-an386 -display none -semihosting -monitor none -serial none -kernel "$image" \
        </dev/null 2>&1)
    code=$?
    if [ "$code" = 0 ] && grep -q ' failed 0 ' <<<"$said" && grep -q '^refused: arena too small' <<<"$said"; then
        pass "firmware on a Cortex-M4: $(head -n 1 <<<"$said")"
    else
        fail "firmware on a Cortex-M4: exit $code: $said"
    fi
else
    skip "firmware on a Cortex-M4: $(tail -n 1 "$work/log" 2>/dev/null || echo no qemu-system-arm)"
fi

# ---- level (b) on this machine ----
build_agent() { # build_agent COMPILER LIBRARY OUTPUT FLAGS...
    local compiler=$1 library=$2 output=$3
    shift 3
    "$compiler" -std=c11 -Wall -Wextra -Werror -Os -g "$@" -I"$here/capi" -o "$output" "$here/capi/agent.c" "$library"
}
# run_agent NAME COMMAND...: exit 0, and the process started meanwhile is among the events.
run_agent() {
    local name=$1 code
    shift
    "$@" "$object" --ring events --for 3 >"$work/out" 2>"$work/err" &
    local agent=$!
    for _ in $(seq 100); do
        grep -q '^loaded' "$work/out" && break
        kill -0 "$agent" 2>/dev/null || break
        sleep 0.1
    done
    sleep 0.3
    /bin/true
    wait "$agent"
    code=$?
    if [ "$code" = 0 ] && grep -q 'exec pid=.* comm=true ' "$work/out" && grep -q 'exit pid=.* comm=true code=0' "$work/out" &&
        grep -q '^lost 0$' "$work/out" && grep -q '^ring most_unread=[1-9][0-9]* times_full=0$' "$work/out"; then
        pass "$name: $(grep '^loaded' "$work/out"), $(grep '^records' "$work/out")"
    else
        fail "$name: exit $code: $(head -n 3 "$work/out") $(tail -n 12 "$work/err")"
    fi
}
can_load() { [ "$(id -u)" = 0 ] && [ -e /sys/kernel/btf/vmlinux ]; }
if cargo build -q -p corelo-capi --profile device --manifest-path "$workspace/Cargo.toml" 2>"$work/log" &&
    build_agent cc "$target_dir/device/libcorelo.a" "$work/agent" &&
    build_agent cc "$target_dir/device/libcorelo.so" "$work/agent-shared" -Wl,-rpath,"$target_dir/device"; then
    pass "agent.c builds with libcorelo.a and libcorelo.so"
    if can_load; then
        run_agent "agent, static library" "$work/agent"
        run_agent "agent, shared library" "$work/agent-shared"
        if command -v valgrind >/dev/null; then
            run_agent "agent under valgrind, no leak" valgrind -q --leak-check=full --show-leak-kinds=all \
                --errors-for-leak-kinds=all --error-exitcode=9 "$work/agent"
            # Failures must not leak either: a missing file, a damaged object, kernel BTF that is none.
            head -c 3000 "$object" >"$work/cut.o"
            for arguments in "$work/none.o" "$work/cut.o" "$object --btf $here/capi/corelo.h" "$object --ring no_such_map"; do
                # shellcheck disable=SC2086  # several words
                valgrind -q --leak-check=full --show-leak-kinds=all --errors-for-leak-kinds=all --error-exitcode=9 \
                    "$work/agent" $arguments >"$work/out" 2>"$work/err"
                code=$?
                said=$(tail -n 1 "$work/err")
                if [ "$code" = 1 ] && [[ $said == "agent: "* ]]; then pass "refused without a leak: $said"; else fail "agent $arguments: exit $code: $said"; fi
            done
        else
            skip "valgrind is not installed"
        fi
    else
        skip "the agent is not run: it takes root and a kernel with BTF"
    fi
else
    fail "agent.c or its library does not build:"
    tail -n 20 "$work/log"
fi

# ---- level (b) for 32-bit ARM, linked statically ----
if [ "${1:-}" != --no-arm ]; then
    target=armv7-unknown-linux-gnueabihf
    if "$here/build.sh" "$target" -p corelo-capi -- --lib >"$work/log" 2>&1; then
        library=$target_dir/$target/device/libcorelo.a
        if build_agent arm-linux-gnueabihf-gcc "$library" "$target_dir/$target/device/c-agent" -static -s 2>"$work/err"; then
            pass "agent.c for $target, static: $(stat -c %s "$target_dir/$target/device/c-agent") bytes, at $target_dir/$target/device/c-agent"
        else
            fail "agent.c for $target does not link: $(head -n 5 "$work/err")"
        fi
    else
        fail "level (b) for $target does not build:"
        tail -n 20 "$work/log"
    fi
fi
exit "$failed"
