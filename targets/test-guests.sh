#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# The loader's own test programs, unit and integration, on kernels that refuse nothing: builds them for each architecture, boots
# each kernel and runs them there as root with CORELO_REQUIRE_KERNEL=1.
#
#     targets/test-guests.sh [KERNEL]...        default: amd64-5.10 amd64-7.2 arm64-6.1 armhf-6.1 s390x-7.2
#
# What a test skips there must be for the kernel's age or its architecture: guest-skips.tsv lists every skip. One that is not
# listed fails, and so does a line of the table that skips no more, a program that ran no test, and a run that ran nothing. The
# last line is `N passed, N failed`; exit 0 when none failed.
#
# The environment: CORELO_QEMU_LOGS (a directory that keeps the consoles), CORELO_GUEST_TIMEOUT (seconds for a boot, 300),
# CORELO_GUEST_SKIPS (the table).

set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
workspace=$(dirname "$here")
. "$here/kernels.sh"

logs=${CORELO_QEMU_LOGS:-$(mktemp -d)}
mkdir -p "$logs"
skips=${CORELO_GUEST_SKIPS:-$here/guest-skips.tsv}
passed=0 failed=0

pass() {
    passed=$((passed + 1))
    echo "ok      $*"
}
fail() {
    failed=$((failed + 1))
    echo "FAILED  $*"
}

# libraries ARCH: SOURCE:DESTINATION of the dynamic linker, the C library and gcc's, of the cross compiler or this machine.
libraries() {
    local triple linker place=/lib/ from
    case $1 in
    amd64) triple=x86_64-linux-gnu linker=ld-linux-x86-64.so.2 place=/lib64/ ;;
    arm64) triple=aarch64-linux-gnu linker=ld-linux-aarch64.so.1 ;;
    armhf) triple=arm-linux-gnueabihf linker=ld-linux-armhf.so.3 ;;
    s390x) triple=s390x-linux-gnu linker=ld64.so.1 ;;
    esac
    from=/usr/$triple/lib
    [ -e "$from/libc.so.6" ] || from=/lib/$triple
    echo "$from/$linker:$place$linker"
    echo "$from/libc.so.6:/lib/$triple/libc.so.6"
    echo "$from/libgcc_s.so.1:/lib/$triple/libgcc_s.so.1"
}

# small_program ARCH: /bin/true, with nothing in it but what it does.
small_program() {
    local out=$logs/true-$1 compiler
    case $1 in
    amd64) compiler=x86_64-linux-gnu-gcc ;;
    arm64) compiler=aarch64-linux-gnu-gcc ;;
    armhf) compiler=arm-linux-gnueabihf-gcc ;;
    s390x) compiler=s390x-linux-gnu-gcc ;;
    esac
    rm -f "$out"
    echo 'int main(void) { return 0; }' | "$compiler" -x c -Os -s -o "$out" - && [ -s "$out" ] && echo "$out"
}

# programs ARCH: `NAME PATH` of each test program, without debug information. (Their symbols and notes are what they probe.)
programs() {
    local arch=$1 target name path into=$logs/tests-$1
    case $arch in
    amd64) target=x86_64-unknown-linux-gnu ;;
    arm64) target=aarch64-unknown-linux-gnu ;;
    armhf) target=armv7-unknown-linux-gnueabihf ;;
    s390x) target=s390x-unknown-linux-gnu ;;
    *) return 1 ;;
    esac
    if [ ! -e "$into/list" ]; then
        mkdir -p "$into"
        "$here/build.sh" "$target" -p corelo-loader --tests -- --locked --features alloc,tokio >"$into/built" 2>"$into/log" || return 1
        while read -r name path; do
            rm -f "$into/$name"
            strip_for "$arch" "$path" "$into/$name" && [ -s "$into/$name" ] || {
                echo "strip makes nothing of $path" >>"$into/log"
                return 1
            }
            echo "$name $into/$name"
        done <"$into/built" >"$into/list.new" || return 1
        sort -o "$into/list.new" "$into/list.new"
        # One for the library and one for each file of tests.
        [ "$(wc -l <"$into/list.new")" = $((1 + $(find "$workspace/std-loader/tests" -maxdepth 1 -name '*.rs' | wc -l))) ] || {
            echo "not every test program was built" >>"$into/log"
            return 1
        }
        mv "$into/list.new" "$into/list"
    fi
    cat "$into/list"
}

strip_for() {
    case $1 in
    amd64) x86_64-linux-gnu-strip -g -o "$3" "$2" ;;
    arm64) aarch64-linux-gnu-strip -g -o "$3" "$2" ;;
    armhf) arm-linux-gnueabihf-strip -g -o "$3" "$2" ;;
    s390x) s390x-linux-gnu-strip -g -o "$3" "$2" ;;
    esac
}

# skipped PROGRAM FILE: `PROGRAM<TAB>TEST<TAB>WHAT` of each skip in the output of a test program.
skipped() {
    awk -v program="$1" '
        /^---- .* stdout ----$/ { test = $2; next }
        /^(successes|failures):$/ { test = "" }
        /^skipped: / { what = $0; sub(/^skipped: /, "", what); sub(/: .*/, "", what); print program "\t" test "\t" what }' "$2" | sort -u
}

check_kernel() {
    local kernel=$1 arch log=$logs/$1-tests.log list name path config arguments=() file number=0 code said wrong
    arch=$(kernel_arch "$kernel")
    list=$(programs "$arch") || {
        fail "$kernel: the tests do not build for $arch:"
        tail -n 20 "$logs/tests-$arch/log" 2>/dev/null
        return
    }
    config=$(kernel_config "$kernel") || {
        fail "$kernel: no kernel or no configuration of it"
        return
    }
    while read -r file; do
        arguments+=(--file "$file")
    done < <(libraries "$arch")
    file=$(small_program "$arch") || {
        fail "$kernel: $arch has no C compiler"
        return
    }
    # Any that is executable: only its place matters.
    arguments+=(--file "$file:/bin/true" --file "$file:/usr/bin/env")
    # Where the tests look for them: the path that they were built in.
    for file in "$workspace"/tests/fixtures/*.{o,btf} "$workspace"/std-loader/{Cargo.toml,examples/bpf/*.o} \
        "$workspace"/targets/agent/bpf/*.o; do
        arguments+=(--file "$file:$file")
    done
    arguments+=(--file "$config:/config" --do info --do "env CORELO_REQUIRE_KERNEL=1" --do config)
    while read -r name path; do
        arguments+=(--file "$path:/tests/$name" --run "/tests/$name --test-threads=1 --show-output")
    done <<<"$list"
    "$here/boot.sh" "$kernel" --mem 512 "${arguments[@]}" --timeout "${CORELO_GUEST_TIMEOUT:-300}" >"$log" 2>&1
    code=$?
    if ! grep -q '^CORELO-EXIT' "$log"; then
        fail "$kernel: did not come to its end (boot.sh gave $code); the console's tail:"
        tail -n 25 "$log" | sed 's/^/        /'
        return
    fi
    : >"$log.skips"
    while read -r name path; do
        number=$((number + 1)) said=$log.$name
        awk -v number="$number" '/^CORELO-CMD / { if ($2 == number) exit; text = ""; next } { text = text $0 "\n" }
            END { printf "%s", text }' "$log" >"$said"
        code=$(sed -n "s/^CORELO-CMD $number exit=\([0-9]*\) .*/\1/p" "$log")
        wrong=$(sed -n 's/^test result: ok\. \([0-9]*\) passed; 0 failed; 0 ignored; .*/\1/p' "$said" | tail -n 1)
        if [ "$code" = 0 ] && [ "${wrong:-0}" -gt 0 ]; then
            pass "$kernel $name: $wrong tests, $(sed -n "s/^CORELO-CMD $number .* ms=\([0-9]*\).*/\1/p" "$log") ms"
        else
            fail "$kernel $name: exit=${code:-none}"
            grep -E -A 12 'panicked at|^error|FAILED|No such file' "$said" | head -n 60 | sed 's/^/        /'
        fi
        skipped "$name" "$said" >>"$log.skips"
    done <<<"$list"
    check_skips "$kernel" "$log.skips"
}

# The skips are those of the table, no more and no fewer.
check_skips() {
    local kernel=$1 more fewer
    awk -F'\t' -v kernel="$kernel" '/^#/ { next } $1 == kernel { print $2 "\t" $3 "\t" $4 }' "$skips" | sort >"$2.wanted"
    sort "$2" >"$2.got"
    more=$(comm -13 "$2.wanted" "$2.got") fewer=$(comm -23 "$2.wanted" "$2.got")
    if [ -z "$more$fewer" ]; then
        pass "$kernel: $(wc -l <"$2.got") skips, those of $(basename "$skips")"
    else
        fail "$kernel: skips are not those of $skips"
        [ -z "$more" ] || sed "s/^/        not listed: $kernel\t/" <<<"$more"
        [ -z "$fewer" ] || sed "s/^/        listed, and not skipped: $kernel\t/" <<<"$fewer"
    fi
}

[ -r "$skips" ] || {
    echo "test-guests.sh: no table of skips at $skips" >&2
    exit 126
}
[ $# -gt 0 ] || set -- amd64-5.10 amd64-7.2 arm64-6.1 armhf-6.1 s390x-7.2
for kernel in "$@"; do
    check_kernel "$kernel"
done
echo "consoles: $logs"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
