#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# What `cargo publish` would give to strangers: packs each crate that is published, looks at what is in the packages, and builds
# from the packed files alone: a new crate that depends on the loader, the loader's examples, and the command. They are run, the
# example as root (what cannot be run is said, and fails where CORELO_REQUIRE_KERNEL=1).
#
#     targets/test-packages.sh
#
# Nothing of Corelo need be on crates.io: what depends on another package is told where that lies unpacked. The last line is
# `N as they should, N not`; exit 0 when none is not.

set -uo pipefail
workspace=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$workspace" || exit 1
target=${CARGO_TARGET_DIR:-$workspace/target}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. "$workspace/targets/tally.sh"

# check WHAT COMMAND...
check() {
    local what=$1
    shift
    if "$@" >"$work/said" 2>&1 </dev/null; then ok "$what"; else wrong "$what"; fi
}

# name, folder, and the files that it has beside its sources, by patterns of find(1).
packages="corelo-core core -
corelo-loader std-loader OLD-KERNELS.md|examples/*.rs|examples/bpf/*
corelo targets/agent bpf/*.bpf.c|bpf/*.bpf.o|bpf/corelo.h"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

# Every crate is published or says that it is not.
undecided() {
    local manifest
    : >"$work/said"
    find . -name target -prune -o -name Cargo.toml -print | while read -r manifest; do
        grep -q '^\[package\]' "$manifest" || continue
        grep -q '^publish = false' "$manifest" && continue
        grep -q " $(dirname "${manifest#./}") " <<<"$packages" || echo "$manifest is neither published nor says publish = false"
    done | tee -a "$work/said" | (! grep .)
}
check "each crate is published or says that it is not" undecided

rm -f "$target"/package/*.crate
check "cargo package" cargo package --locked --allow-dirty --no-verify $(awk '{ print "-p", $1 }' <<<"$packages")

# What should be in a package, of what is in its folder.
wanted() {
    local folder=$1 patterns=$2 pattern
    printf '%s\n' Cargo.lock Cargo.toml Cargo.toml.orig LICENSE-APACHE LICENSE-MIT README.md
    (cd "$folder" && find src -name '*.rs')
    [ "$patterns" = - ] || (IFS='|' && set -f && for pattern in $patterns; do
        (cd "$workspace/$folder" && find . -path "./$pattern" \( -type f -o -type l \)) | sed 's|^\./||' | grep . ||
            echo "nothing is $pattern"
    done)
}
same_files() {
    diff <(wanted "$1" "$2" | LC_ALL=C sort) <(cd "$3" && find . -type f | sed 's|^\./||' | grep -v '^\.cargo_vcs_info\.json$' | LC_ALL=C sort)
}
described() {
    local manifest=$1/Cargo.toml key
    for key in description homepage documentation readme keywords categories license repository rust-version all-features targets; do
        grep -q "^$key = ." "$manifest" || { echo "$manifest has no $key" && return 1; }
    done
    grep -q '^\[package.metadata.docs.rs\]' "$manifest" || { echo "$manifest has nothing for docs.rs" && return 1; }
    ! grep -n 'path = "\.\.' "$manifest"
}
links() {
    local link found
    found=$(grep -oE '\]\([^):#]+\)' "$1/README.md" | tr -d '()]')
    for link in $found; do
        [ -e "$1/$link" ] || { echo "README.md: there is no $link" && return 1; }
    done
}
features() {
    local feature
    for feature in $(sed -n '/^\[features\]/,/^\[[^f]/s/^\([a-z0-9_-]*\) = .*/\1/p' "$1/Cargo.toml"); do
        [ "$feature" = default ] || grep -q "^| \`$feature\`" "$1/README.md" || { echo "README.md: no feature $feature" && return 1; }
    done
}
while read -r name folder patterns; do
    unpacked=$work/$name-$version
    check "$name: unpacked" tar -xzf "$target/package/$name-$version.crate" -C "$work"
    check "$name: what it needs and nothing else" same_files "$folder" "$patterns" "$unpacked"
    check "$name: described" described "$unpacked"
    check "$name: the links of its README" links "$unpacked"
    check "$name: its features are in its README" features "$unpacked"
    for licence in LICENSE-APACHE LICENSE-MIT; do
        check "$name: $licence" cmp "$licence" "$unpacked/$licence"
    done
done <<<"$packages"

# From here on only what was packed. One folder for all that is built, as most of it is the same.
export CARGO_TARGET_DIR=$target/packages
patch=(--config "patch.crates-io.corelo-core.path='$work/corelo-core-$version'"
    --config "patch.crates-io.corelo-loader.path='$work/corelo-loader-$version'")
rm -f "$CARGO_TARGET_DIR/debug/examples/steps" "$CARGO_TARGET_DIR/debug/fresh"
cd "$work/corelo-loader-$version" || exit 1
check "the loader's examples" cargo build --all-features --examples "${patch[@]}"

mkdir -p "$work/fresh/src"
printf '[package]\nname = "fresh"\nversion = "0.0.0"\nedition = "2024"\n\n[dependencies]\ncorelo-loader = "%s"\n' "$version" >"$work/fresh/Cargo.toml"
cp examples/steps.rs "$work/fresh/src/main.rs" && cp -r examples/bpf "$work/fresh/src/"
cd "$work/fresh" || exit 1
check "a new crate with the loader as its one dependency" cargo build "${patch[@]}"

# It watches processes start; this starts some.
watches() {
    local running
    "$CARGO_TARGET_DIR/debug/fresh" 3 >"$work/events" 2>&1 &
    running=$!
    while kill -0 "$running" 2>/dev/null; do
        sleep 0.2
    done
    cat "$work/events"
    wait "$running" && grep -q '^attached: on_exec$' "$work/events" && grep -qE '^[0-9]+ sleep$' "$work/events"
}
if [ "$(id -u)" = 0 ] || [ "${CORELO_REQUIRE_KERNEL-}" = 1 ]; then
    check "the new crate's program sees processes start" watches
else
    echo "skipped: the new crate's program is not run: it needs root"
fi

cd "$work" || exit 1
check "cargo install corelo" cargo install --debug --locked --path "$work/corelo-$version" --root "$work/installed" "${patch[@]}"
budget() {
    "$work/installed/bin/corelo" budget "$work/corelo-loader-$version/examples/bpf/agent.bpf.o" | grep -E '[0-9]'
}
check "the installed command" budget

tally 20
