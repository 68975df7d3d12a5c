#!/bin/bash
# SPDX-License-Identifier: MIT
# Every allocator on every generated trace: one row each, tab-separated.  Utilisation, reserved bytes and calls are exact and
# the same on every machine; ns/op is this machine's.
#   replay_table.sh [BUILD [TRACE...]]     ALLOCATORS="caching pytorch" limits the columns
set -u
cd "$(dirname "$0")/../.."
build=${1:-build}
[ $# -gt 0 ] && shift
traces=${*:-$("$build"/bin/gpuprof generate --list | cut -d' ' -f1)}
allocators=${ALLOCATORS:-caching pytorch auto_growth prealloc passthrough}
bad=0
printf 'trace\tallocator\tused\treserved MiB\tallocated MiB\tfailed\tcalls\t2nd half\tdriver ms\tns/op\n'
for trace in $traces; do
    for allocator in $allocators; do
        "$build"/bin/gpuprof replay generate:"$trace" --allocator="$allocator" --json </dev/null |
            python3 -c '
import json, sys
r = json.load(sys.stdin)
print(sys.argv[1], r["allocator"], "%.3f" % r["utilisation"], r["peak_reserved_bytes"] >> 20, r["peak_allocated_bytes"] >> 20, r["failed"],
      r["driver_calls"], r["driver_calls_second_half"], "%.1f" % (r["simulated_driver_ns"] / 1e6), "%.0f" % r["ns_per_operation"], sep="\t")' "$trace" || bad=1
    done
done
exit "$bad"
