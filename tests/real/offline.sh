#!/bin/bash
# SPDX-License-Identifier: MIT
# Without a network and without what was fetched before, `make check-real` skips every program, says why, and fails nothing.
#
#   tests/real/offline.sh BUILD [NAME...]
#
# NAME as for tests/real/check; a few rows of each kind without it, since pip tries three times for each.
# Run: slow
set -u
cd "$(dirname "$0")/../.."
build=${1:-build}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- cupy torch-newest node-llama-cpp sleepers imports table
unshare -n true 2>/dev/null || { echo "real/offline.sh: this user may not have a network of its own (unshare -n)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
GPUPROF_REAL=$work/real NPM_CONFIG_CACHE=$work/npm unshare -n tests/real/check "$build" "$@" >"$work/out" 2>&1
status=$?
passed=0 failed=0
check() { # WHAT STATUS
    if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED  $1"; cat "$work/out"; fi
}
check "exits with 0" $status
for name; do
    case $name in
        table) why='ZeRO 2: there is no ' ;;
        imports) why='tests/real/imports.sh: no package in ' ;;
        sleepers) why='tests/real/index: torch-2.10: the package index cannot be reached$' ;;
        *) why="tests/real/index: $name: (the package index cannot be reached|this system has no npm)$" ;;
    esac
    grep -qE "^skipped $why" "$work/out"
    check "$name says why it is skipped" $?
done
grep -q '^0 passed, 0 failed, [1-9]' "$work/out"
check "nothing passes, nothing fails" $?
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
