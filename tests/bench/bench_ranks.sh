#!/bin/bash
# SPDX-License-Identifier: MIT
# bench_ranks.sh [BUILD [RANKS [EVENTS]]]: `report`, its page, `leaks` and `diff` of the recordings of a made-up job, 1024
# ranks with 10^5 events each unless others are given (mkranks, 1 GB of temporary files).  "unmarked" is a job without
# marks, whose steps must be found.  TSV: name, ranks, seconds of wall time, of processor time, MB of the largest process.
set -eu
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}") ranks=${2:-1024} events=${3:-100000}
[ -z "${BENCH_TINY:-}" ] || { ranks=8 events=2000; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for job in leaks unmarked; do
    mkdir "$work/$job"
    "$build/tests/jobs/mkranks" "$work/$job" "$ranks" "$events" $job
done
python3 - "$build" "$work" "$ranks" <<'END'
import os
import subprocess
import sys
import time

build, work, ranks = sys.argv[1], sys.argv[2], sys.argv[3]
marked, unmarked = work + "/leaks", work + "/unmarked"
ways = {"report": ["report", marked], "report_page": ["report", marked, "-o", work + "/page.html"], "leaks": ["leaks", marked],
        "leaks_json": ["leaks", marked, "--json"], "leaks_unmarked": ["leaks", unmarked], "diff": ["diff", marked, unmarked]}
for way, words in ways.items():
    begin = time.perf_counter()
    child = subprocess.Popen([build + "/bin/gpuprof", *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - begin
    if status:
        sys.exit(f"{way}: status {status}")
    print(way, ranks, "%.2f" % wall, "%.2f" % (usage.ru_utime + usage.ru_stime), "%.0f" % (usage.ru_maxrss * 1024 / 1e6), sep="\t")
END
