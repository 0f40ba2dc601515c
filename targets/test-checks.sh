#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# The checks of CI, checked: each script is run with its tool broken (it fails, dies of a signal, or says nothing and succeeds),
# with its data gone, and with its subject gone, and has to fail each time. Where that is cheap the same is run whole before, with
# stand-ins for the slow tools, and has to pass, so that it is the damage that makes it fail.
#
#     targets/test-checks.sh
#
# It works in a copy of the repository made of links. The last line is `N failed as they should, N did not`.

set -uo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. "$repo/targets/tally.sh"
export CORELO_REQUIRE_KERNEL=1 CORELO_REQUIRE_CORPUS=1

# fails WHAT COMMAND...: it must not succeed, and not for running out of time or for want of the command itself.
fails() {
    local what=$1 code=0
    shift
    PATH=$work/tools:$PATH timeout 300 "$@" >"$work/said" 2>&1 </dev/null || code=$?
    if [ "$code" = 0 ] || [ "$code" = 124 ] || grep -q '^timeout: failed to run' "$work/said"; then
        wrong "$what: exit $code"
    else
        ok "$what: exit $code"
    fi
}
passes() {
    local what=$1 code=0
    shift
    PATH=$work/tools:$PATH timeout 300 "$@" >"$work/said" 2>&1 </dev/null || code=$?
    if [ "$code" = 0 ]; then ok "$what"; else wrong "$what: exit $code"; fi
}

# fresh: the copy, anew; tool NAME TEXT: a stand-in that comes before all others in PATH.
fresh() {
    rm -rf "$work/repo" "$work/tools" "$work/target"
    mkdir -p "$work/repo" "$work/tools" "$work/target"
    for part in .ci bench core std-loader targets tests Cargo.toml Cargo.lock LICENSE-MIT LICENSE-APACHE; do
        cp -rs "$repo/$part" "$work/repo/"
    done
    export CARGO_TARGET_DIR=$work/target
}
tool() {
    rm -f "$work/tools/$1"
    printf '#!/bin/bash\n%s\n' "$2" >"$work/tools/$1"
    chmod +x "$work/tools/$1"
}
# stand_in FILE TEXT: a script of the copy that is another.
stand_in() {
    rm -f "$work/repo/$1"
    printf '#!/bin/bash\n%s\n' "$2" >"$work/repo/$1"
    chmod +x "$work/repo/$1"
}
# broken NAME WHAT COMMAND...: with the tool failing, dying, and succeeding without a word.
broken() {
    local name=$1 what=$2 saved=
    shift 2
    [ -e "$work/tools/$name" ] && saved=$(tail -n +2 "$work/tools/$name")
    tool "$name" 'exit 1'
    fails "$what, $name fails" "$@"
    tool "$name" 'kill -SEGV $$'
    fails "$what, $name dies" "$@"
    tool "$name" 'exit 0'
    fails "$what, $name says nothing" "$@"
    rm "$work/tools/$name"
    [ -z "$saved" ] || tool "$name" "$saved"
}

# ---- bench/check-instructions.sh ----
check=$work/repo/bench/check-instructions.sh
instructions() {
    fresh
    tool cargo 'exit 0'
    mkdir -p "$work/target/release" "$work/corpus/btf"
    tool made 'echo made >"$3"' && mv "$work/tools/made" "$work/target/release/made_up_btf"
    tool run 'exit 0' && cp "$work/tools/run" "$work/target/release/cold" && mv "$work/tools/run" "$work/target/release/warm"
    : | zstd -q -f -o "$work/corpus/btf/amd64-6.12.117.btf.zst"
    # What the baseline says, for each round.
    tool valgrind '"${@:3}" || exit
case "$3 $5" in *cold*made-up*) name=cold/made-up ;; *warm*) name=warm/made-up ;; *) name=cold/amd64-6.12.117 ;; esac
echo "==1== Collected : $(($(awk -v name="$name" "\$1 == name { print \$2 }" '"$repo"'/bench/baseline.tsv) * $6 + 1000))" >&2'
}
export CORELO_CORPUS=$work/corpus
instructions
passes "check-instructions" "$check"
broken valgrind "check-instructions" "$check"
broken cargo "check-instructions, nothing was built" env CARGO_TARGET_DIR="$work/none" "$check"
tool valgrind 'echo "==1== Collected : 1000" >&2'
fails "check-instructions, valgrind counts nothing" "$check"
tool valgrind 'echo "==1== Collected : $(($6 * 100000000))" >&2'
fails "check-instructions, a rise" "$check"
for subject in cold warm made_up_btf; do
    instructions
    printf '#!/bin/bash\nexit 1\n' >"$work/target/release/$subject"
    fails "check-instructions, $subject fails" "$check"
    rm "$work/target/release/$subject"
    fails "check-instructions, $subject is missing" "$check"
done
instructions
rm "$work/repo/bench/baseline.tsv"
fails "check-instructions, no baseline" "$check"
: >"$work/repo/bench/baseline.tsv"
fails "check-instructions, an empty baseline" "$check"
grep -v warm/made-up "$repo/bench/baseline.tsv" >"$work/repo/bench/baseline.tsv"
fails "check-instructions, a name that the baseline lacks" "$check"
{ cat "$repo/bench/baseline.tsv" && printf 'cold/other\t1\n'; } >"$work/repo/bench/baseline.tsv"
fails "check-instructions, a name that is not counted" "$check"
instructions
fails "check-instructions, no corpus" env CORELO_CORPUS=/nonexistent "$check"
rm -rf "$work/corpus"

# ---- targets/check-sizes.sh ----
check=$work/repo/targets/check-sizes.sh budgets=$work/repo/targets/budgets.toml
sizes() {
    fresh
    head -c 450000 /dev/zero >"$work/program"
    stand_in targets/build.sh "echo $work/program"
    stand_in targets/capi/firmware/build.sh 'echo text_rodata_bytes=65000'
}
sizes
passes "check-sizes" "$check"
passes "check-sizes, one name" "$check" corelo
fails "check-sizes, a name that the budgets lack" "$check" no-such-program
for text in 'exit 1' 'kill -SEGV $$' 'exit 0' 'echo /nonexistent' "echo $work/none"; do
    : >"$work/none"
    sizes
    stand_in targets/build.sh "$text"
    fails "check-sizes, build.sh: $text" "$check"
    sizes
    stand_in targets/capi/firmware/build.sh "$text"
    fails "check-sizes, firmware/build.sh: $text" "$check"
done
sizes
head -c 2000000 /dev/zero >"$work/program"
fails "check-sizes, too large" "$check"
sizes
rm "$budgets"
fails "check-sizes, no budgets" "$check"
: >"$budgets"
fails "check-sizes, empty budgets" "$check"
for line in name target max_bytes; do
    rm "$budgets"
    # The second entry, which must not inherit from the first.
    awk -v line="$line" '/^\[\[/ { entries++ } entries == 2 && $1 == line { next } { print }' "$repo/targets/budgets.toml" >"$budgets"
    fails "check-sizes, an entry without $line" "$check"
done
rm "$budgets"
sed 's/\[\[program\]\]/[[programme]]/' "$repo/targets/budgets.toml" >"$budgets"
fails "check-sizes, an entry of another kind" "$check"

# ---- tests/fuzz/run.sh ----
check=$work/repo/tests/fuzz/run.sh
fuzzing() {
    fresh
    tool rustc 'echo "host: here"'
    tool cargo 'exit 0'
    mkdir -p "$work/target/here/release"
    for target in "$repo"/tests/fuzz/targets/*.rs; do
        target=$(basename "$target" .rs)
        tool one 'echo "#1 cov: 12 ft: 3"; echo "Done 100 runs in 1 second(s)"' && mv "$work/tools/one" "$work/target/here/release/$target"
    done
    tool seeds 'for target in '"$repo"'/tests/fuzz/targets/*.rs; do mkdir -p "$1/$(basename "$target" .rs)"; echo x >"$1/$(basename "$target" .rs)/x"; done'
    mv "$work/tools/seeds" "$work/target/here/release/seeds"
}
export CORELO_FUZZ_RUNS=100
fuzzing
passes "fuzz" "$check"
broken cargo "fuzz, nothing was built" env CARGO_TARGET_DIR="$work/none" "$check"
broken rustc "fuzz" "$check"
for text in 'exit 1' 'kill -SEGV $$' 'exit 0' 'echo "Done 5 runs"; echo "cov: 12"' 'echo "Done 100 runs"; echo "cov: 0"'; do
    fuzzing
    printf '#!/bin/bash\n%s\n' "$text" >"$work/target/here/release/relo"
    fails "fuzz, a target: $text" "$check"
done
for text in 'exit 1' 'kill -SEGV $$' 'exit 0'; do
    fuzzing
    printf '#!/bin/bash\n%s\n' "$text" >"$work/target/here/release/seeds"
    fails "fuzz, seeds: $text" "$check"
done
fuzzing
rm "$work/target/here/release/relo"
fails "fuzz, a target is missing" "$check"
fuzzing
cp "$repo/tests/fuzz/targets/relo.rs" "$work/repo/tests/fuzz/targets/another.rs"
fails "fuzz, a target that is not in the list" "$check"

# ---- the fixtures' Makefiles ----
for folder in tests/fixtures targets/agent/bpf std-loader/examples/bpf; do
    for compiler in false true "sh -c 'kill -SEGV \$\$\$\$'"; do
        fresh
        fails "$folder, clang is: $compiler" make -s -C "$work/repo/$folder" check CLANG="$compiler"
    done
    rm "$work/repo/$folder"/*.bpf.c
    fails "$folder, no sources" make -s -C "$work/repo/$folder" check
done
fresh
cp "$work/repo/tests/fixtures/nothing_asked-el.o" "$work/repo/tests/fixtures/orphan-el.o"
fails "tests/fixtures, an object without a source" make -s -C "$work/repo/tests/fixtures" check
fresh
rm "$work/repo/targets/agent/bpf/exec_monitor.bpf.o"
head -c 100 "$repo/targets/agent/bpf/exec_monitor.bpf.o" >"$work/repo/targets/agent/bpf/exec_monitor.bpf.o"
fails "targets/agent/bpf, an object of another source" make -s -C "$work/repo/targets/agent/bpf" check
fresh
cp "$work/repo/std-loader/examples/bpf/agent.bpf.o" "$work/repo/std-loader/examples/bpf/orphan.bpf.o"
fails "std-loader/examples/bpf, an object without a source" make -s -C "$work/repo/std-loader/examples/bpf" check

# ---- targets/test-packages.sh ----
check=$work/repo/targets/test-packages.sh
packages() {
    fresh
    # Packs as ever; what is built are stand-ins.
    tool cargo 'case $1 in
package) exec '"$(command -v cargo)"' "$@" ;;
build) mkdir -p "$CARGO_TARGET_DIR/debug" && { echo "#!/bin/bash"; echo "echo attached: on_exec; sleep 0.5; echo 12 sleep"; } >"$CARGO_TARGET_DIR/debug/fresh" && chmod +x "$CARGO_TARGET_DIR/debug/fresh" ;;
install) while [ "$1" != --root ]; do shift; done && mkdir -p "$2/bin" && { echo "#!/bin/bash"; echo "echo 3704 bytes"; } >"$2/bin/corelo" && chmod +x "$2/bin/corelo" ;;
esac'
}
# damaged FILE SED: a file of the copy that is changed.
damaged() {
    sed "$2" "$repo/$1" >"$work/changed" && rm "$work/repo/$1" && cp "$work/changed" "$work/repo/$1"
}
packages
passes "test-packages" "$check"
broken cargo "test-packages" "$check"
tool cargo "[ \$1 != build ] || exit 1; exec $(command -v cargo) \"\$@\""
fails "test-packages, nothing builds" "$check"
for gone in core/LICENSE-MIT std-loader/README.md targets/agent/bpf/corelo.h; do
    packages
    rm "$work/repo/$gone"
    fails "test-packages, without $gone" "$check"
done
for key in keywords categories documentation rust-version homepage all-features targets; do
    packages
    damaged core/Cargo.toml "/^$key/d"
    fails "test-packages, $key is not said" "$check"
done
packages
damaged std-loader/Cargo.toml '/^include/d'
fails "test-packages, more than it needs" "$check"
packages
damaged targets/agent/Cargo.toml 's|, "/bpf/\*.bpf.\[co\]"||'
fails "test-packages, less than it needs" "$check"
packages
damaged std-loader/README.md 's|(OLD-KERNELS.md)|(OLDER-KERNELS.md)|'
fails "test-packages, a link to nothing" "$check"
packages
damaged std-loader/README.md '/^| `usdt`/d'
fails "test-packages, a feature that the README does not name" "$check"
packages
damaged tests/Cargo.toml '/^publish/d'
fails "test-packages, a crate that is neither published nor not" "$check"
for text in 'echo attached: on_exec' 'echo 12 sleep' 'exit 0' 'exit 1'; do
    packages
    tool cargo "$(tail -n +2 "$work/tools/cargo" | sed "s/echo attached: on_exec; sleep 0.5; echo 12 sleep/$text/")"
    fails "test-packages, the example: $text" "$check"
done

# ---- targets/test-big-endian.sh ----
check=$work/repo/targets/test-big-endian.sh
fresh
tool cargo 'echo "test result: ok. 300 passed; 0 failed"'
passes "test-big-endian" env CORELO_CARGO="$work/tools/cargo" "$check"
for text in 'exit 1' 'kill -SEGV $$' 'exit 0' 'echo "test result: ok. 0 passed; 0 failed"'; do
    tool cargo "$text"
    fails "test-big-endian, cargo: $text" env CORELO_CARGO="$work/tools/cargo" "$check"
done

# ---- targets/boot.sh, targets/ci-qemu.sh ----
cache=${CORELO_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/corelo}
fresh
broken qemu-system-x86_64 "boot" "$work/repo/targets/boot.sh" amd64-7.2 --do info
fails "boot, a kernel that nobody has" "$work/repo/targets/boot.sh" amd64-1.0 --do info
fails "boot, a file that is not there" "$work/repo/targets/boot.sh" amd64-7.2 --file /nonexistent:/file --do info
tool corelo 'exit 0'
export CORELO_BIN_AMD64=$work/tools/corelo CORELO_BIN_ARMHF=$work/tools/corelo
for text in 'exit 1' 'kill -SEGV $$' 'exit 0' 'echo "CORELO-EXIT: 0"'; do
    stand_in targets/boot.sh "$text"
    fails "ci-qemu, boot.sh: $text" "$work/repo/targets/ci-qemu.sh" amd64-5.10
done
unset CORELO_BIN_AMD64
stand_in targets/build.sh 'exit 1'
fails "ci-qemu, nothing builds" "$work/repo/targets/ci-qemu.sh" amd64-5.10
fails "ci-qemu, a kernel that nobody has" env CORELO_REQUIRE_KERNEL=0 "$work/repo/targets/ci-qemu.sh" amd64-1.0

# ---- targets/test-guests.sh ----
check=$work/repo/targets/test-guests.sh
guests() {
    fresh
    tool x86_64-linux-gnu-strip 'cp "$4" "$3"'
    # The same tests as there are files; each boot answers for all of them, with the skips of the table.
    stand_in targets/build.sh 'for file in '"$repo"'/std-loader/tests/*.rs corelo_loader.rs; do echo "$(basename "$file" .rs) /bin/true"; done'
    stand_in targets/boot.sh 'number=0
for word; do
    case $word in /tests/*" "*)
        name=${word#/tests/} name=${name%% *} number=$((number + 1))
        awk -F"\t" -v name="$name" '"'"'$1 == "amd64-5.10" && $2 == name { print "---- " $3 " stdout ----\nskipped: " $4 ": why\n" }'"' $repo/targets/guest-skips.tsv"'
        echo "test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out"
        echo "CORELO-CMD $number exit=0 rss_kib=1 ms=1 cmd=$word" ;;
    esac
done
echo "CORELO-EXIT: 0"'
}
guests
passes "test-guests" "$check" amd64-5.10
broken x86_64-linux-gnu-strip "test-guests" "$check" amd64-5.10
broken x86_64-linux-gnu-gcc "test-guests" "$check" amd64-5.10
for text in 'exit 1' 'kill -SEGV $$' 'exit 0' 'echo "one /bin/true"'; do
    guests
    stand_in targets/build.sh "$text"
    fails "test-guests, build.sh: $text" "$check" amd64-5.10
done
for text in 'exit 1' 'kill -SEGV $$' 'exit 0' 'echo "CORELO-EXIT: 0"'; do
    guests
    stand_in targets/boot.sh "$text"
    fails "test-guests, boot.sh: $text" "$check" amd64-5.10
done
for change in 's/ 5 passed/ 0 passed/' 's/ 0 ignored/ 1 ignored/' 's/exit=0/exit=101/' 's/skipped: " /skipped: more " /'; do
    guests
    sed "$change" "$work/repo/targets/boot.sh" >"$work/changed" && cat "$work/changed" >"$work/repo/targets/boot.sh"
    fails "test-guests, the boot says: $change" "$check" amd64-5.10
done
guests
{ cat "$repo/targets/guest-skips.tsv" && printf 'amd64-5.10\tusdt\tsome_test\tsomething\n'; } >"$work/skips"
fails "test-guests, a line that skips no more" env CORELO_GUEST_SKIPS="$work/skips" "$check" amd64-5.10
grep -v -m 1 '^amd64-5.10' "$repo/targets/guest-skips.tsv" >"$work/skips"
fails "test-guests, a skip that is not listed" env CORELO_GUEST_SKIPS="$work/skips" "$check" amd64-5.10
fails "test-guests, no table" env CORELO_GUEST_SKIPS=/nonexistent "$check" amd64-5.10
fails "test-guests, a kernel that nobody has" "$check" amd64-1.0

tally 100
