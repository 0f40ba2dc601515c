# SPDX-License-Identifier: MIT OR Apache-2.0
#
# For scripts of many checks, which source it: what is as it should be, and what is not with what `$work/said` has of it.

good=0 bad=0

ok() {
    good=$((good + 1))
    echo "ok      $*"
}
wrong() {
    bad=$((bad + 1))
    echo "FAILED  $*"
    tail -n 30 "$work/said" | sed 's/^/        /'
}
# tally AT_LEAST: the last line. Fewer than so many that are as they should be are a failure too.
tally() {
    echo "$good as they should, $bad not"
    [ "$bad" = 0 ] && [ "$good" -gt "$1" ]
}
