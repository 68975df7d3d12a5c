#!/bin/sh
# SPDX-License-Identifier: MIT
# bench_ring_lttng.sh [BUILD [THREADS]]: our ring beside an LTTng-UST tracepoint of the same payload, in one run.
# LTTng runs in snapshot mode (overwrite, nothing goes to disk), which is what our ring does.  A session daemon of its own
# lives in a temporary directory and is gone afterwards.
set -eu

ours=${1:-build}/tests/$([ -n "${BENCH_TINY:-}" ] && echo tiny || echo bench)/bench_ring
threads=${2:-2}
here=$(cd "$(dirname "$0")" && pwd)

"$ours" "$threads"
if ! command -v lttng-sessiond >/dev/null || ! echo '#include <lttng/tracepoint.h>' | ${CC:-cc} -E - >/dev/null 2>&1; then
    printf '# missing: LTTng-UST (lttng-tools, liblttng-ust-dev)\n'
    exit 0
fi

home=$(mktemp -d)
export LTTNG_HOME="$home" LTTNG_RUNDIR="$home/run" LTTNG_UST_REGISTER_TIMEOUT=5000
mkdir -p "$LTTNG_RUNDIR"
daemon=
finish() {
    lttng destroy gpuprof-bench >/dev/null 2>&1 || true
    if [ -n "$daemon" ]; then
        kill "$daemon" 2>/dev/null || true
        wait "$daemon" 2>/dev/null || true
    fi
    rm -rf "$home"
}
trap finish EXIT INT TERM

${CC:-cc} -O2 -I"$here/lttng" -o "$home/bench_lttng" "$here/lttng/bench_lttng.c" -llttng-ust -lpthread -ldl
lttng-sessiond --no-kernel >"$home/log" 2>&1 &
daemon=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    lttng --no-sessiond list >/dev/null 2>&1 && break
    sleep 0.2
done
lttng --no-sessiond create gpuprof-bench --snapshot >/dev/null
lttng --no-sessiond enable-channel --userspace --subbuf-size=512k --num-subbuf=2 ring >/dev/null
lttng --no-sessiond enable-event --userspace --channel=ring 'gpuprof_bench:*' >/dev/null
lttng --no-sessiond start >/dev/null
"$home/bench_lttng" "$threads"
# Ours again: what the machine did meanwhile shows as the difference between the two.
"$ours" "$threads"
