#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Builds what targets/budgets.toml lists and compares sizes. Every line says what was measured; exit 0 when all fit.
#
#     targets/check-sizes.sh [NAME]...        default: all
#
# A NAME that the list does not have, an entry that lacks something, a list without entries and a size that cannot be one fail.

set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
failed=0

# kind, name, target and max_bytes of every entry, one line each.
budgets() {
    awk -F' *= *' '
        function flush() {
            if (kind != "") print kind, name == "" ? "-" : name, target == "" ? "-" : target, max == "" ? "-" : max
            name = target = max = ""
        }
        /^\[\[/ { flush(); kind = $0; gsub(/[][]/, "", kind) }
        $1 == "name" { name = $2; gsub(/"/, "", name) }
        $1 == "target" { target = $2; gsub(/"/, "", target) }
        $1 == "max_bytes" { max = $2 }
        END { flush() }' "$here/budgets.toml"
}

if ! list=$(budgets) || [ -z "$list" ]; then
    echo "FAILED  $here/budgets.toml has no entry"
    exit 1
fi
for name; do
    awk -v name="$name" '$2 == name { found = 1 } END { exit !found }' <<<"$list" || {
        echo "FAILED  $name is not in budgets.toml"
        failed=1
    }
done
while read -r kind name target max; do
    if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then
        continue
    fi
    log=$(mktemp) bytes=
    if [[ ! $max =~ ^[0-9]+$ ]] || [ "$name" = - ] || [ "$target" = - ]; then
        echo "FAILED  budgets.toml: an entry without name, target or max_bytes: $kind $name $target $max"
        failed=1
        continue
    fi
    case $kind in
    program) built=$("$here/build.sh" "$target" -p "$name" 2>"$log" | tail -n 1) && bytes=$(stat -L -c %s "$built") ;;
    firmware) bytes=$("$here/capi/firmware/build.sh" 2>"$log" | sed -n 's/^text_rodata_bytes=//p') ;;
    *) echo "budgets.toml: unknown kind $kind" >"$log" && false ;;
    esac
    if [[ ! ${bytes:-} =~ ^[0-9]+$ ]]; then
        echo "FAILED  $name for $target does not build:"
        tail -n 20 "$log"
        failed=1
    elif [ "$bytes" -lt $((max / 4)) ]; then
        echo "FAILED  $name for $target: $bytes bytes, which cannot be all of it"
        failed=1
    elif [ "$bytes" -le "$max" ]; then
        echo "ok      $name for $target: $bytes bytes of at most $max"
    else
        echo "FAILED  $name for $target: $bytes bytes, at most $max"
        failed=1
    fi
    rm -f "$log"
done <<<"$list"
exit "$failed"
