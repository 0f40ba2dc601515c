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
# Exit: 0 no rise, 1 a rise, 126 valgrind is missing.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v valgrind >/dev/null || { echo "valgrind is missing" >&2; exit 126; }
cargo build --release --quiet -p corelo-bench --bin cold --bin warm --bin made_up_btf
bin=${CARGO_TARGET_DIR:-target}/release
baseline=bench/baseline.tsv
object=tests/fixtures/many_progs-el.o
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

count() { # instructions of a command
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" 2>&1 >/dev/null | sed -n 's/.*Collected : *\([0-9]*\).*/\1/p'
}
round() { # instructions of one round more: PROGRAM BTF
    local one two
    one=$(count "$bin/$1" "$object" "$2" 1)
    two=$(count "$bin/$1" "$object" "$2" 2)
    echo $((two - one))
}

"$bin/made_up_btf" "$object" 126000 "$work/made-up.btf"
printf '%s\t%s\n' cold/made-up "$(round cold "$work/made-up.btf")" warm/made-up "$(round warm "$work/made-up.btf")" >"$work/now"
corpus=${CORELO_CORPUS:-../shared/corpus}/btf/amd64-6.12.117.btf.zst
if [ -f "$corpus" ] && command -v zstd >/dev/null; then
    zstd -dqf "$corpus" -o "$work/kernel.btf"
    printf '%s\t%s\n' cold/amd64-6.12.117 "$(round cold "$work/kernel.btf")" >>"$work/now"
else
    echo "skipped: cold/amd64-6.12.117, no corpus or no zstd"
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
    echo "$name: $now, baseline $was: $verdict"
done <"$work/now"
exit $status
