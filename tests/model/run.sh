#!/bin/sh
# SPDX-License-Identifier: MIT
# run.sh: checks that counter.pml holds and that every mutant fails.  Exit 0: all checks passed; 1: a check failed; 77: spin
# or a C compiler is missing.  `run.sh` uses one processor for some minutes; `run.sh quick` checks the smallest layout only.
# Run: slow
set -u
here=$(cd "$(dirname "$0")" && pwd)
command -v spin >/dev/null 2>&1 && command -v "${CC:-cc}" >/dev/null 2>&1 || {
    echo "model: spin or a C compiler is not installed: skipped"
    exit 77
}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT INT TERM
passed=0
failed=0

# check NAME WANT(holds|fails) SPIN-FLAGS...
check() {
    name=$1 want=$2
    shift 2
    rm -rf "$dir/x" && mkdir "$dir/x" && cd "$dir/x" || exit 1
    if ! spin -a "$@" "$here/counter.pml" >log 2>&1 ||
        ! "${CC:-cc}" -O2 -w -DSAFETY -DCOLLAPSE -DMEMLIM=6000 -o pan pan.c >>log 2>&1; then
        cat log
        echo "FAIL $name: does not build"
        failed=$((failed + 1))
        return
    fi
    timeout 900 ./pan -m200000 -w24 >out 2>&1
    got=unclear
    if grep -q 'errors: 0' out && ! grep -Eq 'max search depth too small|out of memory|reached -DMEMLIM' out; then got=holds; fi
    # An invalid end state would be a deadlock of the model, not a wrong peak: a mutant must break an assertion.
    if grep -q 'assertion violated' out; then got=fails; fi
    states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' out | head -n 1)
    if [ "$got" = "$want" ]; then
        echo "ok   $name: $got, ${states:-?} states"
        passed=$((passed + 1))
    else
        echo "FAIL $name: $got, wanted $want"
        tail -n 20 out
        failed=$((failed + 1))
    fi
}

check "one shard each" holds -DUPDATERS=2 -DSHARDS=2 -DUPDATES=2 -DLOOKS=2
[ "${1:-}" = quick ] || check "one shard each, three updates" holds -DUPDATERS=2 -DSHARDS=2 -DUPDATES=3 -DLOOKS=2
[ "${1:-}" = quick ] || check "one shard for two" holds -DUPDATERS=2 -DSHARDS=1 -DUPDATES=3 -DLOOKS=2
[ "${1:-}" = quick ] || check "three updaters on two shards" holds -DUPDATERS=3 -DSHARDS=2 -DUPDATES=2 -DLOOKS=1
for mutant in OPEN_FREE NO_WAIT EARLY_RELEASE OPEN_FIRST RESET_OPEN RESET_LIMIT WATCH_LIMIT; do
    check "mutant $mutant" fails -DM_$mutant -DUPDATERS=2 -DSHARDS=2 -DUPDATES=2 -DLOOKS=2
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
