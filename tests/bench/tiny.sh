#!/bin/bash
# SPDX-License-Identifier: MIT
# tiny.sh BUILD: every bench of `make bench` with hardly any repetitions: each must end with 0 and print its table.  The
# figures mean nothing.  Ends with "N passed, N failed, N skipped".
# Run: script
set -u
cd "$(dirname "$0")/../.."
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
check() { # NAME COMMAND...
    local name=$1 began=$SECONDS status
    shift
    BENCH_TINY=1 timeout -k 10 120 "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    if [ $status = 0 ] && grep -q "$(printf '\t')" "$work/out"; then
        passed=$((passed + 1))
        echo "ok      $name ($((SECONDS - began)) s)"
    elif [ $status = 0 ] && grep -q '^# missing: ' "$work/out"; then
        skipped=$((skipped + 1))
        echo "skipped $name: $(sed -n 's/^# missing: //p' "$work/out")"
    else
        failed=$((failed + 1))
        echo "FAILED  $name: exit $status"
        tail -n 20 "$work/out" "$work/err" | sed 's/^/        /'
    fi
}
for source in tests/bench/bench_*.c; do
    name=$(basename "$source" .c)
    case $name in
    bench_cache) counts="100 1" ;;
    bench_counter) counts="100 1" ;;
    bench_export | bench_fit) counts=2000 ;;
    bench_site) counts=1 ;;
    *) counts= ;;
    esac
    # shellcheck disable=SC2086 # a list of counts
    check "$name" "$build/tests/tiny/$name" $counts
done
for script in tests/bench/bench_*.sh; do
    check "$(basename "$script")" "$script" "$build" $([ "$script" != tests/bench/bench_torch.sh ] || echo 1)
done
ALLOCATORS="caching pytorch" check replay_table.sh tests/bench/replay_table.sh "$build" leak
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
