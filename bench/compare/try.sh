#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Builds the agent of one loader in a crate of its own, outside of the workspace, and runs it as root:
#
#     bench/compare/try.sh corelo|aya|libbpf_rs [SECONDS]        default: 5 seconds

set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
case ${1-} in
corelo) dependency=(--path "$here/../../std-loader" --features alloc corelo-loader) ;;
aya) dependency=(aya@0.16) ;;
libbpf_rs) dependency=(libbpf-rs@0.27) ;;
*) sed -n '4,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2 && exit 2 ;;
esac
object=$here/../../std-loader/examples/bpf/agent.bpf.o
[ "$(printf '\1\0' | od -An -td2)" -eq 1 ] || object=${object%.bpf.o}-eb.bpf.o
crate=$(mktemp -d)
trap 'rm -rf "$crate"' EXIT

cargo init -q --vcs none --name agent "$crate"
cp "$here/main.rs" "$here/types.rs" "$crate/src/"
cp "$here/$1.rs" "$crate/src/agent.rs"
cd "$crate"
cargo add -q "${dependency[@]}"
cargo add -q zerocopy@0.8 --features derive
[ "$1" != aya ] || cargo add -q rustix@1 --features event
cargo build -q --release
"${CARGO_TARGET_DIR:-target}/release/agent" "$object" "${2:-5}"
