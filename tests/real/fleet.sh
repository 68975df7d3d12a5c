#!/bin/sh
# SPDX-License-Identifier: MIT
# fleet.sh: the statements of docs/fleet.md, asked of real engines of the package index about made-up jobs, whose answers are those of
# gpuprof's own commands: `report`, `diff` and `peak`.
#
#   tests/real/fleet.sh [BUILD] [ENGINE...]
#
# ENGINE is one of tests/real/fleet/ask.py; all of them without one.  Two jobs of RANKS=256 with EVENTS=100000 each as Parquet, for
# which it takes 1 GB of disk; as Arrow files, which are not compressed, those of at most 32 ranks.  Spark needs a Java.  The engines
# are rows of index.table.  By name only.  77: no engine can be had.
set -eu
cd "$(dirname "$0")/../.."
build=$(cd "${1:-build}" && pwd)
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- pyarrow duckdb duckdb-arrow clickhouse clickhouse-arrow polars pandas spark
here=$PWD/tests/real/fleet
page=$PWD/docs/fleet.md
ranks=${RANKS:-256} events=${EVENTS:-100000}
engines=$(tests/real/index engines) || { echo "$engines"; exit 77; }
export PYTHONPATH="$PWD/python" PYTHONDONTWRITEBYTECODE=1 PATH="$build/bin:$PATH"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0 skipped=0
judged() { # NAME STATUS
    [ "$2" = 0 ] && { passed=$((passed + 1)); echo "ok      $1"; return; }
    failed=$((failed + 1))
    echo "FAILED  $1"
}

# Two jobs, and gpuprof's own answers about them.
make_jobs() { # FOLDER RANKS
    mkdir -p "$1/now" "$1/week"
    cd "$1"
    "$build/tests/jobs/mkranks" week "$2" "$events" even
    "$build/tests/jobs/mkranks" now "$2" "$events" asleep 604800
    gpuprof report now --json >now.json
    gpuprof report week --json >week.json
    gpuprof diff week now --json >diff.json
    gpuprof report now/run.rank2.gpuprof --json >sleeper.json
    gpuprof peak now/run.rank5.gpuprof --json >worst.json
    echo "not a recording" >now/other.gpuprof
}

small=$((ranks < 32 ? ranks : 32))
make_jobs "$dir/small" $small
begun=$(date +%s)
for job in week now; do gpuprof export $job --format=arrow -o arrow 2>said || { cat said; exit 1; }; tail -n 1 said; done
echo "arrow: $(($(date +%s) - begun)) s, $(du -sm arrow | cut -f 1) MiB"
status=0
grep -q "now/other.gpuprof: .*; it is left out" said || status=1
judged "the file that is no recording is named" $status
"$engines/bin/python" -m gpuprof parquet week now -o tables 2>said || { cat said; exit 1; }

# Killed on the way, and gone on with.
make_jobs "$dir/large" "$ranks"
begun=$(date +%s)
timeout -s KILL 10 "$engines/bin/python" -m gpuprof parquet week now -o tables 2>said || true
echo "parquet: killed with $(find tables/job -name '*.parquet' 2>/dev/null | wc -l) recordings written"
"$engines/bin/python" -m gpuprof parquet week now -o tables 2>said || { cat said; exit 1; }
tail -n 1 said
bytes=$(find tables -name '*.parquet' -printf '%s\n' | awk '{sum += $1} END {print sum}')
rows=$("$engines/bin/python" -c 'import pyarrow.dataset as d; print(d.dataset("tables/events", partitioning=None).count_rows())')
echo "parquet: $(($(date +%s) - begun)) s, $rows events, $((bytes * 10 / rows)) tenths of a byte for each, in all tables"
status=0
[ $((bytes / rows)) -lt 25 ] || status=1
judged "Parquet has less than 25 bytes per event" $status
"$engines/bin/python" -m gpuprof parquet week now -o tables 2>said || true
status=0
grep -q ": of $((2 * ranks + 1)) recordings 0 written, $((2 * ranks)) there already, 1 left out" said || status=1
judged "a second run writes nothing" $status
status=0
[ -z "$(find "$dir"/*/tables "$dir"/*/arrow -name '.*' ! -name .gpuprof-export)" ] || status=1
judged "nothing is left beside the tables" $status

for engine in "$@"; do
    python=$engines/bin/python
    # pandas has all rows in memory.
    case $engine in *arrow | pandas) cd "$dir/small" ;; *) cd "$dir/large" ;; esac
    if [ "$engine" = spark ]; then
        command -v java >/dev/null || { skipped=$((skipped + 1)); echo "skipped spark: no Java"; continue; }
        python=$(cd "$here/../../.." && tests/real/index spark)/bin/python ||
            { skipped=$((skipped + 1)); echo "skipped spark: $python"; continue; }
    fi
    status=0
    "$python" "$here/ask.py" "$engine" "$page" "$engine.json" >said 2>&1 || { status=1; tail -n 30 said; }
    [ $status != 0 ] || { tail -n 1 said; "$python" "$here/judge.py" "$engine.json" now.json week.json diff.json sleeper.json worst.json || status=1; }
    judged "$engine" $status
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
