#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs a real PyTorch with CUDA on the simulated GPU under gpuprof, and compares gpuprof's numbers with
# PyTorch's own after every step of the scripts in tests/real/torch.  Before that: the simulator has every function that these
# libraries want of the runtime and the driver.
#
#   tests/real/torch.sh [BUILD] [PART...]
#
# PART is a name in tests/real/torch without .py, or one of those at the end; without it all are run.  It is the PyTorch that Debian builds, from the mirror (tests/real/torch-root),
# or the one in the folder $GPUPROF_TORCH_ROOT, such as tests/real/index makes.  Without it the test is skipped (exit status 77).
# Run: slow
set -u
shopt -s extglob
cd "$(dirname "$0")/../.."
build=${1:-build}
[ $# -eq 0 ] || shift
sim=$build/lib/gpuprof/sim
root=${GPUPROF_TORCH_ROOT:-}
[ -n "$root" ] || root=$(tests/real/torch-root 2>&1) || { echo "$root" | tail -n 1; exit 77; }
tests/real/inside "$root" true || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
pass() { passed=$((passed + 1)); echo "ok      $1"; }
fail() { failed=$((failed + 1)); echo "FAILED  $1"; [ -z "${2:-}" ] || tail -n 30 "$2" | sed 's/^/        /'; }

imports() { # every function of the runtime and the driver that a library of the root wants and the simulator lacks
    nm -D --defined-only "$sim/libcudart.so.12" "$sim/libcuda.so.1" | awk 'NF == 3 {sub(/@.*/, "", $3); print $3}' | sort -u >"$work/have"
    local libraries=() library
    for library in "$root"/usr/lib/x86_64-linux-gnu/lib{torch,c10,caffe2,tensorpipe,nccl,cu,nv}*.so.* \
        "$root"/lib/python3*/site-packages/{torch/lib,nvidia/*/lib}/lib{torch,c10,caffe2,tensorpipe,nccl,cu,nv}*.so*; do
        # NVIDIA's runtime, and CUPTI, are not used here.
        [[ ! -f $library || -L $library || $library == */libcu*(dart|pti).so* ]] || libraries+=("$library")
    done
    for library in "${libraries[@]}"; do nm -D --undefined-only "$library" | awk '{sub(/@.*/, "", $NF); print $NF}'; done | grep -E '^(__cuda|cuda|cu)[A-Z]' | sort -u >"$work/want"
    # Names of the other libraries begin with cu, too.
    for library in "${libraries[@]}"; do nm -D --defined-only "$library" | awk '{sub(/@.*/, "", $NF); print $NF}'; done | sort -u >"$work/others"
    comm -23 "$work/want" "$work/have" | comm -23 - "$work/others" >"$work/lacking"
    if [ ! -s "$work/want" ] || [ -s "$work/lacking" ]; then
        fail "the simulator's functions: $(wc -l <"$work/want") wanted, lacking:" "$work/lacking"
    else
        pass "the simulator has all $(wc -l <"$work/want") functions that the libraries want"
    fi
}

script() { # NAME SOURCE
    local file=tests/real/torch/$1.py spec
    case $1 in asleep*) cc -shared -fPIC -O1 -Isim/include -o "$work/sleeper.so" tests/real/torch/sleeper.c -L"$sim" -l:libcuda.so.1 ;; esac
    spec=$(sed -n 's/^# sim: //p' "$file")
    GPUPROF_SLEEPER=$work/sleeper.so GPUPROF_SOURCE=$2 PYTHONPATH=$PWD/python:$PWD/tests/real/torch timeout -k 10 300 \
        "$build/bin/gpuprof" run --sim${spec:+=$spec} -- tests/real/inside "$root" python3 "$file" >"$work/out" 2>&1 </dev/null
    local status=$?
    if [ "$status" = 0 ] && grep -q ' agree$' "$work/out"; then pass "$1 ($2): $(grep ' agree$' "$work/out" | tail -n 1)"; else
        fail "$1 ($2): exit $status" "$work/out"
    fi
}

# What the command reads from outside, while the program stands still.
viewer() { # NAME SETTING
    local pid status
    rm -f "$work/go" "$work/own" "$work/ours"
    mkfifo "$work/go"
    PYTHONPATH=$PWD/python:$PWD/tests/real/torch "$build/bin/gpuprof" run --sim=devices=2 -- tests/real/inside "$root" \
        env $2 python3 tests/real/torch/outside.py "$work/own" >"$work/inside" 2>"$work/error" <>"$work/go" &
    local job=$!
    for _ in $(seq 1200); do
        grep -q '^ready' "$work/inside" && break
        kill -0 "$job" 2>/dev/null || break
        sleep 0.1
    done
    pid=$(sed -n 's/^pid //p' "$work/inside")
    "$build/bin/gpuprof" stat --json -p "${pid:-0}" >"$work/stat" 2>>"$work/error"
    "$build/bin/gpuprof" snapshot -p "${pid:-0}" -o "$work/ours" 2>>"$work/error"
    echo >"$work/go"
    wait "$job"
    status=$?
    # Each line of the script: device, name of a statistic, PyTorch's value.
    awk '$1 == "is"' "$work/inside" | while read -r _ device key value; do
        python3 -c '
import json, sys
device, key, value = int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
for one in json.load(open(sys.argv[1]))["processes"][0]["devices"]:
    if one["device"] == device and one["stats"][key] != value:
        print(f"device {device}: {key}: gpuprof stat says {one['"'stats'"'][key]}, PyTorch {value}")
' "$work/stat" "$device" "$key" "$value"
    done >"$work/differ" 2>&1
    python3 -c '
import json, sys
for one in json.load(open(sys.argv[1]))["processes"][0]["devices"]:
    if not one["frameworks"] or not one["frameworks"][0]["agrees"]:
        print("device", one["device"], "frameworks", one["frameworks"])
    for part in ("allocated", "reserved"):
        total, owned = one["stats"][f"{part}_bytes.all.current"], sum(o[f"{part}_bytes"] for o in one["owners"])
        if total != owned or one["owners"][0]["owner"] != "pytorch":
            print("device", one["device"], part, total, one["owners"])
' "$work/stat" >>"$work/differ" 2>&1
    python3 tests/real/torch/alike.py "$work/own" "$work/ours" >>"$work/differ" 2>&1
    python3 tests/python/read_viz.py "$root" "$work/own" "$work/ours" >"$work/viz" 2>&1 || cat "$work/viz" >>"$work/differ"
    if [ -n "${GPUPROF_MEMORY_VIZ:-}" ]; then
        python3 tests/real/viewer.py "$GPUPROF_MEMORY_VIZ" "${GPUPROF_D3:?names no d3.js}" "$work/own" "$work/ours" >"$work/viz" 2>&1 ||
            cat "$work/viz" >>"$work/differ"
    fi
    if [ "$status" = 0 ] && [ -s "$work/stat" ] && grep -q '^is' "$work/inside" && [ ! -s "$work/differ" ]; then
        pass "stat and snapshot from outside, $1: the same as PyTorch's own"
    else
        fail "stat and snapshot from outside, $1 (exit $status)" "$work/differ"
        tail -n 5 "$work/error"
    fi
}

# The forecast after two steps is the peak of the run, where the steps are alike; a loop that keeps its losses grows.
forecast() { # VERDICT [ARGUMENT]
    PYTHONPATH=$PWD/python:$PWD/tests/real/torch timeout -k 10 300 "$build/bin/gpuprof" run --sim --force --record="$work/f.gpuprof" -- \
        tests/real/inside "$root" python3 tests/real/torch/train.py ${2:-} >"$work/out" 2>&1 </dev/null
    "$build/bin/gpuprof" report --json "$work/f.gpuprof" 2>/dev/null | python3 -c '
import json, sys
device = json.load(sys.stdin)["devices"][0]
forecast, peak = device["forecast"], device["allocated_peak_bytes"]
early = forecast["after_two_steps"]["peak_bytes"]
assert forecast["verdict"] == sys.argv[1], forecast
assert (early is None) == (sys.argv[1] == "not periodic"), early
assert sys.argv[1] != "steady" or abs(early / peak - 1) <= 0.01, (early, peak)
' "$1" 2>>"$work/out" && pass "forecast: $1" || fail "forecast: $1" "$work/out"
}

# The uses that `phases` finds have the bytes that PyTorch granted for them.
uses() { # KIND
    PYTHONPATH=$PWD/python:$PWD/tests/real/torch timeout -k 10 300 "$build/bin/gpuprof" run --sim --force --record="$work/u.gpuprof" -- \
        tests/real/inside "$root" python3 tests/real/torch/uses.py "$1" >"$work/out" 2>&1 </dev/null
    "$build/bin/gpuprof" phases --json "$work/u.gpuprof" 2>/dev/null | python3 -c '
import json, sys
truth = json.loads([line for line in open(sys.argv[1]) if line.startswith("{")][0])
found = {}
for row in json.load(sys.stdin)["devices"][0]["uses"]:
    found[row["use"]] = found.get(row["use"], 0) + row["peak_bytes"]
for use, size in truth.items():
    # A cache that is copied is there twice for a moment; graphed calls have a copy of their input.
    over = {"grows": 0.1, "weights": 0.001 if "graphs" in found else 0}.get(use, 0)
    assert size <= found.get(use, 0) <= size * (1 + over), (use, size, found)
assert len(truth) > 1 or found["graphs"], found
' "$work/out" 2>>"$work/out" && pass "uses: $1" || fail "uses: $1" "$work/out"
}

# The uses agree with what a program counts itself, within 2 %, and at most 5 % of the peak is unknown.
counted() { # NET OPTIMIZER [checkpoint]
    rm -f "$work/c.gpuprof"
    PYTHONPATH=$PWD/python:$PWD/tests/real/torch timeout -k 10 300 "$build/bin/gpuprof" run --sim --force --record="$work/c.gpuprof" -- \
        tests/real/inside "$root" python3 tests/real/torch/counted.py "$@" >"$work/out" 2>&1 </dev/null
    "$build/bin/gpuprof" phases --json "$work/c.gpuprof" 2>/dev/null | python3 -c '
import json, sys
truth = json.loads([line for line in open(sys.argv[1]) if line.startswith("{")][0])
most, at_peak = {}, {}
for row in json.load(sys.stdin)["devices"][0]["uses"]:
    most[row["use"]] = most.get(row["use"], 0) + row["peak_bytes"]
    at_peak[row["use"]] = at_peak.get(row["use"], 0) + row["at_peak_bytes"]
for use, size in truth.items():
    assert abs(most.get(use, 0) - size) <= size * 0.02, (use, size, most)
assert at_peak.get("unknown", 0) <= sum(at_peak.values()) * 0.05, at_peak
' "$work/out" 2>>"$work/out" && pass "uses, counted: $*" || fail "uses, counted: $*" "$work/out"
}

# Programs that keep nothing have no suspects, and of those that leak a line of theirs is named: in PyTorch's snapshots, and
# in recordings of a few of them.
rhythms() {
    local net name wrong=0
    mkdir "$work/rhythms"
    PYTHONPATH=$PWD/python:$PWD/tests/real/torch timeout -k 10 300 "$build/bin/gpuprof" run --sim -- \
        tests/real/inside "$root" python3 tests/real/torch/rhythms.py "$work/rhythms" >"$work/out" 2>&1 </dev/null
    for name in chain-forward blocks-step1 stages-infer20 chain-losses blocks-exceptions stages-cache chain-hooks; do
        net=${name%-*}
        PYTHONPATH=$PWD/python:$PWD/tests/real/torch timeout -k 10 300 "$build/bin/gpuprof" run --sim \
            --record="$work/rhythms/$name.gpuprof" -- tests/real/inside "$root" python3 tests/real/torch/rhythms.py "$net" \
            "${name#*-}" >>"$work/out" 2>&1 </dev/null
    done
    for name in "$work"/rhythms/*; do
        "$build/bin/gpuprof" leaks --json "$name" 2>>"$work/out" | python3 -c '
import json, re, sys
suspects = json.load(sys.stdin)["suspects"]
leaks = re.search("-(losses|cache|exceptions|hooks|keys)", sys.argv[1])
assert bool(suspects) == bool(leaks), (sys.argv[1], suspects[:1])
assert not leaks or any(frame["file"].endswith("nets.py") for frame in suspects[0]["frames"] if frame["file"]), suspects[0]
' "$name" 2>>"$work/out" || wrong=$((wrong + 1))
    done
    local count
    count=$(find "$work/rhythms" -type f | wc -l)
    if [ "$wrong" = 0 ] && [ "$count" -gt 90 ]; then pass "leaks: $count snapshots and recordings"; else
        fail "leaks: wrong in $wrong of $count" "$work/out"
    fi
}

# gpuprof comes late and leaves again, three times.
attached() { # what, environment
    if env "$2" GPUPROF_TORCH_ROOT="$root" python3 tests/real/torch_attach.py "$build" >"$work/attached" 2>&1; then
        pass "attach and detach, $1: $(tail -n 1 "$work/attached")"
    else
        fail "attach and detach, $1" "$work/attached"
    fi
}

# Its blocks from before the attach.
blocks() { # what, environment
    if env "$2" GPUPROF_TORCH_ROOT="$root" python3 tests/real/torch_blocks.py "$build" >"$work/blocks" 2>&1; then
        pass "blocks from before the attach, $1: $(tail -n 1 "$work/blocks")"
    else
        fail "blocks from before the attach, $1" "$work/blocks"
    fi
}

# The out-of-memory page's advice, put to the proof.
advice() { # number of programs
    if GPUPROF_TORCH_ROOT=$root python3 tests/real/torch_oom.py "$build" "$1" >"$work/advice" 2>&1; then
        pass "advice when memory is out: $(tail -n 1 "$work/advice")"
    else
        fail "advice when memory is out" "$work/advice"
    fi
}

# Whether PyTorch ever made a MemPool is known: the page says that its idle memory comes back.
beside() {
    "$build/bin/gpuprof" run --sim=memory=2GiB -- tests/real/inside "$root" python3 tests/real/torch/beside.py >"$work/out" 2>&1 </dev/null
    if tr -s '\n ' ' ' <"$work/out" | grep -q 'segments without a live block: torch.cuda.empty_cache() gives it back'; then
        pass "the page when another library's request fails"
    else
        fail "the page when another library's request fails" "$work/out"
    fi
}

# Every piece of Python in the documentation that names PyTorch.
documentation() {
    if PYTHONPATH=$PWD/python timeout -k 10 300 "$build/bin/gpuprof" run --sim=memory=4GiB -- tests/real/inside "$root" \
        python3 tests/real/torch_docs.py >"$work/docs" 2>&1 </dev/null; then
        pass "Python in the documentation: $(tail -n 1 "$work/docs")"
    else
        fail "Python in the documentation" "$work/docs"
    fi
}

sound() {
    if GPUPROF_TORCH_ROOT=$root GPUPROF_TEST_FULL='' tests/integration/test_snapshot_sound.sh "$build" >"$work/sound" 2>&1; then
        pass "torch's _memory_viz.py reads snapshots of programs without PyTorch"
    else
        fail "torch's _memory_viz.py" "$work/sound"
    fi
}

both() { # PART: with either kind of segments
    "$1" "segments" A=
    "$1" "expandable segments" PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
}

part() { # NAME
    local name
    case $1 in
        scripts) for name in "${scripts[@]}"; do script "$name" cupti; done ;;
        hooks) for name in basic streams expandable asleep; do script "$name" hooks; done ;;
        forecasts)
            forecast steady
            forecast grows --leak
            forecast "not periodic" --lengths ;;
        used) for name in adam zeroed frozen concat blocks graph; do uses "$name"; done ;;
        counts)
            counted blocks adamw
            counted stages plain
            counted chain many
            counted blocks sgd
            counted blocks adamw checkpoint ;;
        attached | blocks | viewer) both "$1" ;;
        advice) advice 70 ;;
        imports | rhythms | beside | documentation | sound) "$1" ;;
        *) script "$1" cupti ;;
    esac
}

scripts=()
for file in tests/real/torch/*.py; do
    name=$(basename "$file" .py)
    case $name in beside | common | outside | alike | uses | counted | nets | rhythms) ;; *) scripts+=("$name") ;; esac
done
[ $# -gt 0 ] || set -- imports scripts hooks forecasts used counts rhythms attached blocks advice beside documentation viewer sound
for name; do part "$name"; done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
