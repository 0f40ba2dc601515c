#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Builds what targets/budgets.toml lists and compares sizes. Every line says what was measured; exit 0 when all fit.
#
#     targets/check-sizes.sh [NAME]...        default: all

set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
failed=0

# kind, name, target and max_bytes of every entry, one line each.
budgets() {
    awk -F' *= *' '
        function flush() { if (kind != "") print kind, name, target, max }
        /^\[\[/ { flush(); kind = $0; gsub(/[][]/, "", kind) }
        $1 == "name" { name = $2; gsub(/"/, "", name) }
        $1 == "target" { target = $2; gsub(/"/, "", target) }
        $1 == "max_bytes" { max = $2 }
        END { flush() }' "$here/budgets.toml"
}

while read -r kind name target max; do
    if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then
        continue
    fi
    log=$(mktemp)
    case $kind in
    program) built=$("$here/build.sh" "$target" -p "$name" 2>"$log" | tail -n 1) && bytes=$(stat -L -c %s "$built") ;;
    firmware) bytes=$("$here/capi/firmware/build.sh" 2>"$log" | sed -n 's/^text_rodata_bytes=//p') ;;
    *) echo "budgets.toml: unknown kind $kind" >"$log" && false ;;
    esac
    if [ -z "${bytes:-}" ]; then
        echo "FAILED  $name for $target does not build:"
        tail -n 20 "$log"
        failed=1
    elif [ "$bytes" -le "$max" ]; then
        echo "ok      $name for $target: $bytes bytes of at most $max"
    else
        echo "FAILED  $name for $target: $bytes bytes, at most $max"
        failed=1
    fi
    rm -f "$log"
    bytes=
done < <(budgets)
exit "$failed"
