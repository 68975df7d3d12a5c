#!/bin/bash
# SPDX-License-Identifier: MIT
# Cache lines of data, without the stack's, that each event of bench_budget touches: the most common number of its rounds, and
# the most. TSV. With few live blocks, so the map's tables are smaller than in a large program; the number of lines is the same.
set -u
cd "$(dirname "$0")/../.."
folder=bench live=3000
[ -z "${BENCH_TINY:-}" ] || folder=tiny live=300 # tiny.sh
bench=${1:-build}/tests/$folder/bench_budget
if ! command -v valgrind > /dev/null; then
    echo "# missing: valgrind, for the cache lines of an event"
    exit 0
fi
if [ -n "${BENCH_TINY:-}" ]; then # the rest takes half a minute at any count
    "${1:-build}/tests/tiny/bench_budget" 10 > /dev/null || exit 1
    echo "# missing: time for the cache lines of an event"
    exit 0
fi
rounds=10 # as in bench_budget.c
"$bench" 10 > /dev/null || exit 1
valgrind --tool=lackey --trace-mem=yes --log-fd=1 "$bench" "$live" 2> /dev/null |
    awk -v rounds=$rounds '
    /^# / { name[paths++] = $2; mark = substr($4, 3); next }
    /^ [LSM]/ {
        split($2, part, ",")
        at = part[1]
        sub(/^0+/, "", at)
        if (at == mark) {
            if (inside) { seen[int(events / rounds), events % rounds] = lines; events++ }
            inside = !inside
            lines = 0
            split("", line)
            next
        }
        if (!inside || at ~ /^1ffe/)
            next
        at = substr(at, 1, length(at) - 1)               # 16 bytes
        last = substr(at, length(at))                    # 64 bytes: its last digit without two bits
        key = substr(at, 1, length(at) - 1) int((index("0123456789abcdef", last) - 1) / 4)
        if (!(key in line)) { line[key] = 1; lines++ }
    }
    END {
        for (p = 0; p < paths; p++) {
            split("", times)
            best = most = 0
            for (r = 0; r < rounds; r++) {
                n = seen[p, r] + 0
                times[n]++
                if (times[n] > times[best] + 0) best = n
                if (n > most) most = n
            }
            if (name[p] != "mark") printf "%s_lines\t1\t%d\n%s_lines_most\t1\t%d\n", name[p], best, name[p], most
        }
    }'
