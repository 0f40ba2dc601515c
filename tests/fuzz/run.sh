#!/usr/bin/env bash
# Fuzzes: run.sh [SECONDS] [TARGET...]: each target for so many seconds (30), all of them where none is named. With
# CORELO_FUZZ_RUNS=N each does N executions from a fixed seed instead. See README.md.
set -euo pipefail
cd "$(dirname "$0")"

seconds=${1:-30}
shift || true
all=(btf btf_ext file log min_btf object prepare rebase relo ring text)
targets=("${@:-${all[@]}}")
# A target that is not in the list would never be run.
there=$(cd targets && printf '%s\n' *.rs | sed 's/\.rs$//' | sort | tr '\n' ' ')
[ "$there" = "$(printf '%s ' "${all[@]}")" ] || { echo "targets/ has: $there" >&2; exit 1; }

# What cargo-fuzz passes. Stable compilers have it too, behind this variable; libFuzzer and its sources come with libfuzzer-sys.
host=$(rustc -vV | sed -n 's/^host: //p')
export RUSTC_BOOTSTRAP=1 CARGO_INCREMENTAL=0
RUSTFLAGS="--cfg fuzzing -Cdebug-assertions -Coverflow-checks -Ccodegen-units=1 -Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    RUSTFLAGS+=" -Cllvm-args=-sanitizer-coverage-$option"
done
export RUSTFLAGS
# With --target, so that build scripts and macros stay as they are.
bins=(--bin seeds)
for target in "${targets[@]}"; do
    bins+=(--bin "$target")
done
cargo build --release --locked --target "$host" "${bins[@]}"
built=${CARGO_TARGET_DIR:-target}/$host/release

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$built/seeds" "$work/seeds"
for target in "${targets[@]}"; do
    [ -n "$(ls -A "$work/seeds/$target")" ] || { echo "no seeds for $target" >&2; exit 1; }
done
if [ -n "${CORELO_FUZZ_RUNS:-}" ]; then
    # Slow is what is slow on a machine that does other things, too.
    length=(-runs="$CORELO_FUZZ_RUNS" -seed=1 -timeout=60)
else
    length=(-max_total_time="$seconds" -timeout=5)
fi
# Kept from run to run where it is wanted: what was found interesting goes there.
corpus=${CORELO_FUZZ_CORPUS:-$work/corpus}

failed=()
for target in "${targets[@]}"; do
    mkdir -p "artifacts/$target" "$corpus/$target"
    log=$work/$target.log
    status=0
    "$built/$target" "$corpus/$target" "$work/seeds/$target" "${length[@]}" -rss_limit_mb=512 -report_slow_units=2 \
        -artifact_prefix="artifacts/$target/" >"$log" 2>&1 || status=$?
    runs=$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "$log")
    coverage=$(grep -o 'cov: [0-9]*' "$log" | tail -1) || true
    printf '%-8s %9s executions, %s\n' "$target" "${runs:-?}" "${coverage:-cov: ?}"
    grep -o 'artifacts/.*slow-unit.*' "$log" | sed 's/^/         slow: tests\/fuzz\//' || true
    # One that was not run, or has no instrumentation, finds nothing.
    if ((status == 0)) && { ((${runs:-0} < ${CORELO_FUZZ_RUNS:-1})) || [[ ! ${coverage#cov: } =~ ^[1-9] ]]; }; then
        echo "         it ended before its time"
        status=1
    fi
    if ((status != 0)); then
        failed+=("$target")
        grep -E 'panicked at|SUMMARY' -A 2 "$log" | head -12 || true
        sed -n 's/.*written to \(artifacts.*\)/         input: tests\/fuzz\/\1/p' "$log"
    fi
done
if ((${#failed[@]})); then
    echo "failed: ${failed[*]}"
    exit 1
fi
