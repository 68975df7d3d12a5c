#!/bin/sh
# SPDX-License-Identifier: MIT
# fleet.sh: the statements of docs/fleet.md that make Parquet of a job's recordings, run by DuckDB of the package index: the
# peak of each rank is that of `gpuprof report`.  By name only: tests/real/fleet.sh [BUILD].  77: no DuckDB.
set -eu
cd "$(dirname "$0")/../.."
build=$(cd "${1:-build}" && pwd)
page=$PWD/docs/fleet.md
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python=${PYTHON:-python3}
if ! "$python" -c 'import duckdb' 2>/dev/null; then
    python3 -m venv "$dir/env" && "$dir/env/bin/pip" -q install duckdb ||
        { echo "fleet.sh: DuckDB cannot be installed: skipped" >&2; exit 77; }
    python=$dir/env/bin/python
fi
cd "$dir"
mkdir csv
# Three ranks with different peaks.  The command adds the rank to the name of each recording.
for rank in 0 1 2; do
    case $rank in 1) program="train_rt --steps 5" ;; 2) program="leak_rt --steps 30" ;; *) program="train_rt --steps 60" ;; esac
    RANK=$rank WORLD_SIZE=3 "$build/bin/gpuprof" run --sim --record=run.gpuprof -- "$build"/examples/$program \
        >/dev/null 2>"$dir/said" || { cat "$dir/said" >&2; exit 1; }
    "$build/bin/gpuprof" export "run.rank$rank.gpuprof" --format=csv -o "csv/run.rank$rank.csv" 2>/dev/null
    "$build/bin/gpuprof" report "run.rank$rank.gpuprof" --json >"rank$rank.json"
done
"$python" - "$page" <<'PY'
import duckdb, json, re, sys

make, ask = re.findall(r'```sql\n(.*?)```', open(sys.argv[1]).read(), re.S)[:2]
duckdb.sql(make)
types = {row[0]: row[1] for row in duckdb.sql("DESCRIBE FROM 'events.parquet'").fetchall()}
assert types['device'] == 'INTEGER' and types['on_host'] == 'BOOLEAN' and types['time'] == 'TIMESTAMP_NS', types
answers = {(rank, device): peak for rank, device, peak in duckdb.sql(ask).fetchall()}
wanted = {}
for rank in range(3):
    for device in json.load(open(f'rank{rank}.json'))['devices']:
        if device['device'] != 'host' and device['peak'] and device['peak']['bytes']:
            wanted[rank, device['device']] = device['peak']['bytes']
assert len(wanted) >= 3 and len(set(wanted.values())) > 1, wanted
assert answers == wanted, (answers, wanted)
print('fleet.sh: peaks of', len(wanted), 'ranks and devices agree:', wanted)
PY
