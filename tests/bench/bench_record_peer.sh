#!/bin/bash
# SPDX-License-Identifier: MIT
# What heaptrack's recording of host allocations costs, beside bench_record's of GPU memory: file bytes and time per event
# of a program that allocates and frees 64 sizes in random order.  Not the same job: heaptrack takes a stack for each, which
# bench_record's rows do not count, and keeps no times, threads or streams.  TSV: name, value, unit; says so where it is missing.
set -u
command -v heaptrack >/dev/null || { echo "# missing: heaptrack"; exit 0; }
events=$([ -n "${BENCH_TINY:-}" ] && echo 1000 || echo 1280000)
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cat > "$work/twin.c" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int main(void)
{
    static void *volatile blocks[64];
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    unsigned random = 1;
    for (int event = 0; event < EVENTS; event++) {
        random = random * 1664525u + 1013904223u;
        unsigned slot = random >> 8 & 63;
        if (blocks[slot]) {
            free(blocks[slot]);
            blocks[slot] = NULL;
        } else {
            blocks[slot] = malloc(16u * ((random >> 16 & 63) + 1));
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%.1f\n", ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) / EVENTS);
    return 0;
}
END
${CC:-cc} -O1 -g -DEVENTS=$events -o "$work/twin" "$work/twin.c" || exit 1
echo -e "record/heaptrack/off\t$("$work/twin")\tns/event"
on=$(heaptrack -o "$work/trace" "$work/twin" 2>/dev/null | grep -E '^[0-9]+\.[0-9]$' | head -n 1)
bytes=$(cat "$work"/trace* 2>/dev/null | wc -c)
[ -n "$on" ] && [ "$bytes" -gt 0 ] || { echo "# missing: heaptrack (it did not run)"; exit 0; }
echo -e "record/heaptrack/on\t$on\tns/event"
echo -e "record/heaptrack/bytes\t$(awk -v b="$bytes" -v e="$events" 'BEGIN { printf "%.2f", b / e }')\tB/event"
