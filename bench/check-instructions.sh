#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Counts the instructions of a cold and a warm prepare with callgrind, and fails where one rose by more than 5 % above
# bench/baseline.tsv.
#
#     bench/check-instructions.sh            compare
#     bench/check-instructions.sh --update   write the baseline anew
#
# The inputs are the same on every machine: the fixture many_progs against the kernel of the corpus (where that is there) and
# against BTF made up of the fixture's own types. The compiler is not: the baseline says which one it was counted with.
#
# A count that is none, or is less than half of the baseline's, fails too: then what was counted did not do its work. So does a
# line of the baseline that was not counted, but for a kernel of the corpus where there is none (CORELO_REQUIRE_CORPUS=1: also then).
#
# Exit: 0 no rise, 1 a rise or no count, 126 valgrind is missing.

set -euo pipefail
# What fails in $(...) ends this.
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v valgrind >/dev/null || { echo "valgrind is missing" >&2; exit 126; }
cargo build --release --quiet -p corelo-bench --bin cold --bin warm --bin made_up_btf
bin=${CARGO_TARGET_DIR:-target}/release
baseline=bench/baseline.tsv
object=tests/fixtures/many_progs-el.o
skipped=
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

count() { # instructions of a command
    local counted
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" 2>"$work/counted" >/dev/null || {
        echo "valgrind $*: exit $?" >&2
        tail -n 5 "$work/counted" >&2
        return 1
    }
    counted=$(sed -n 's/.*Collected : *\([0-9]*\).*/\1/p' "$work/counted")
    [[ $counted =~ ^[0-9]+$ ]] || { echo "valgrind $*: no count" >&2 && return 1; }
    echo "$counted"
}
round() { # NAME PROGRAM BTF: a line of instructions of one round more
    local one two
    one=$(count "$bin/$2" "$object" "$3" 1)
    two=$(count "$bin/$2" "$object" "$3" 2)
    printf '%s\t%s\n' "$1" $((two - one)) >>"$work/now"
}

"$bin/made_up_btf" "$object" 126000 "$work/made-up.btf"
round cold/made-up cold "$work/made-up.btf"
round warm/made-up warm "$work/made-up.btf"
corpus=${CORELO_CORPUS:-../shared/corpus}/btf/amd64-6.12.117.btf.zst
if [ -f "$corpus" ] && command -v zstd >/dev/null; then
    zstd -dqf "$corpus" -o "$work/kernel.btf"
    round cold/amd64-6.12.117 cold "$work/kernel.btf"
elif [ "${CORELO_REQUIRE_CORPUS:-}" = 1 ]; then
    echo "cold/amd64-6.12.117: no $corpus or no zstd (CORELO_REQUIRE_CORPUS=1)" >&2
    exit 1
else
    echo "skipped: cold/amd64-6.12.117, no corpus or no zstd"
    skipped=cold/amd64-6.12.117
fi
if [ "${1-}" = --update ]; then
    { echo "# instructions of one prepare of many_progs; $(rustc --version)"; cat "$work/now"; } >"$baseline"
    cat "$baseline"
    exit
fi
status=0
while IFS=$'\t' read -r name now; do
    was=$(awk -F'\t' -v name="$name" '$1 == name { print $2 }' "$baseline")
    [ -n "$was" ] || { echo "$name is not in $baseline" >&2; status=1; continue; }
    verdict=ok
    if [ $((now * 100)) -gt $((was * 105)) ]; then verdict="ROSE BY MORE THAN 5 %"; status=1; fi
    if [ $((now * 2)) -lt "$was" ]; then verdict="LESS THAN HALF: what was counted?"; status=1; fi
    echo "$name: $now, baseline $was: $verdict"
done <"$work/now"
for name in $(sed -n 's/^\([a-z]*\/[^\t]*\)\t.*/\1/p' "$baseline"); do
    [ "$name" = "$skipped" ] || grep -q "^$name"$'\t' "$work/now" || { echo "$name of $baseline was not counted" >&2; status=1; }
done
exit $status
