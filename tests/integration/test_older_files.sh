#!/bin/bash
# SPDX-License-Identifier: MIT
# What an older file holds stays until its successor is complete, for each command that writes: test_older_files.sh BUILD_DIR
# Run: script
set -u
cd "$(dirname "$0")/../.." || exit 1
root=$PWD build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
for variable in ${!GPUPROF_@} ${!CUDA_@}; do unset "$variable"; done
export PATH=$build/bin:$PATH
train="$build/examples/train_rt --pace 0 --steps"
passed=0 failed=0
tell() { # WHAT STATUS
    if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED $1" && sed 's/^/        /' out; fi
}
sum() { md5sum <"$1" 2>/dev/null; }
# STATUS COMMAND..: the command has this status, and leaves FILE as it is ($file), or not ($new).
keeps() {
    local status=$1 before
    shift
    before=$(sum "$file")
    "$@" >out 2>&1
    [ $? = "$status" ] && [ -n "$before" ] && [ "$(sum "$file")" = "$before" ]
    tell "keeps $file: $*" $?
    compgen -G "$file.*.part" >/dev/null && tell "a part of $file stays: $*" 1
}
replaces() {
    local status=$1 before
    shift
    before=$(sum "$file")
    "$@" >out 2>&1
    [ $? = "$status" ] && [ "$(sum "$file")" != "$before" ] && [ -s "$file" ] && ! compgen -G "$file.*.part" >/dev/null
    tell "replaces $file: $*" $?
}
killed() { $train 100000 >/dev/null & sleep 0.7; kill -9 $!; wait; }
export -f killed
export train

# A recording of `run`.
file=x.gpuprof
gpuprof run --sim --record=$file -- $train 2 >out 2>&1
for second in false /nonexistent "python3 missing.py" "$train none" "$train 3"; do
    keeps 2 gpuprof run --sim --record=$file -- $second
done
grep -q 'x.gpuprof: a recording of .* stays: replace it with --force, or choose another name' out
tell "what to do is said" $?
keeps 1 gpuprof run --sim --force --record=$file -- false
keeps 127 gpuprof run --sim --force --record=$file -- /nonexistent
keeps 2 gpuprof run --sim --force --record=$file -- $train none
keeps 2 gpuprof run --sim --forse --record=$file -- $train 2
keeps 2 gpuprof dryrun --gpu=t4 --record=$file -- $train 2
keeps 126 gpuprof run --sim --force --record=$file -- /
replaces 0 gpuprof run --sim --force --record=$file -- $train 3
replaces 0 gpuprof run --sim --force --record=$file -- bash -c killed # `run` completes it
grep -q 'none lost, although the process ended without its exit handlers: gpuprof report x.gpuprof' out
tell "the name at the end is said" $?
replaces 0 gpuprof dryrun --gpu=t4 --force --record=$file -- $train 2
# `run` itself is killed: the older one, and what the program wrote.
before=$(sum $file)
gpuprof run --sim --force --record=$file -- $train 100000 >/dev/null 2>out &
sleep 1.2
program=$(pgrep -P $!)
kill -9 $!
kill -9 "$program"
wait 2>/dev/null
[ "$(sum $file)" = "$before" ] && gpuprof report $file.*.part >out 2>&1
tell "the older recording and the part of the new one are readable" $?
rm -f $file.*.part

# Ranks: the first process is none of them.
ranks='for r in 0 1; do RANK=$r WORLD_SIZE=2 $train 2; done'
gpuprof run --sim --record=r.gpuprof -- bash -c "$ranks" >out 2>&1
file=r.rank1.gpuprof
keeps 2 gpuprof run --sim --record=r.gpuprof -- bash -c "$ranks"
grep -q -e '--record=r.gpuprof: r.rank[01].gpuprof is there, of a rank of an earlier run' out
tell "the file of a rank is named" $?
replaces 0 gpuprof run --sim --force --record=r.gpuprof -- bash -c "$ranks"
[ "$(echo r.*)" = "r.rank0.gpuprof r.rank1.gpuprof" ]
tell "the ranks have their names: $(echo r.*)" $?
# The library alone, and %p: another name.
keeps 0 env RANK=1 WORLD_SIZE=2 GPUPROF_RECORD=r.gpuprof gpuprof run --sim -- $train 2
[ -s r.rank1.[0-9]*.gpuprof ]
tell "the library takes another name" $?
file=p.$$.gpuprof
cp x.gpuprof $file
keeps 0 bash -c "exec gpuprof run --sim --record=p.%p.gpuprof -- $train 2"
# Other recorders.
$build/bin/gpuprof run --sim -- $build/examples/train_rt --seconds 60 >/dev/null 2>&1 &
run=$!
until pid=$(pgrep -P $run) && gpuprof stat -p "$pid" >out 2>&1; do sleep 0.1; done
file=x.gpuprof
keeps 2 gpuprof record -p "$pid" -o $file --duration=1
replaces 0 gpuprof record -p "$pid" -o $file --duration=1 --force
keeps 2 gpuprof attach --record=$file --duration=1 "$pid"
kill "$pid"
wait $run

# What is no recording.
file=notes.txt
echo "mine" >$file
keeps 1 gpuprof run --sim --force --record=$file -- $train 2
keeps 1 gpuprof check x.gpuprof --budget=40GiB --junit=$file
keeps 1 gpuprof diff x.gpuprof x.gpuprof --max-growth=1% --junit=$file
keeps 1 gpuprof run --sim --budget=40GiB --junit=$file -- $train 2
echo 'peak 1TiB' >budgets.txt
keeps 1 gpuprof dryrun --gpu=t4 --budgets=budgets.txt --junit=$file -- $train 2
keeps 1 gpuprof generate leak --scale=0.01 -o $file
keeps 1 gpuprof trace --sim -o $file -- $train 2
keeps 1 gpuprof trace --sim -o $file --force -- false
for format in csv chrome sqlite; do keeps 1 gpuprof export x.gpuprof --format=$format -o $file; done
keeps 1 gpuprof snapshot x.gpuprof -o $file
keeps 1 gpuprof cdi generate -o $file
replaces 0 gpuprof trace --sim -o $file --force -- "$build/examples/train_rt" --seconds 1
replaces 0 gpuprof trace --sim --json -o $file -- "$build/examples/train_rt" --seconds 1 # its own
replaces 0 gpuprof generate leak --scale=0.01 -o $file
replaces 0 gpuprof generate leak --scale=0.01 --seed=2 -o $file
keeps 1 gpuprof check x.gpuprof --budget=40GiB --junit=x.gpuprof --force
replaces 0 gpuprof check x.gpuprof --budget=40GiB --junit=$file
replaces 3 gpuprof check x.gpuprof --budget=1KiB --junit=$file
file=x.gpuprof
keeps 1 gpuprof check $file --budget=40GiB --junit=$file --force
file=page.html
echo "mine" >$file
keeps 1 gpuprof report x.gpuprof -o $file
keeps 1 gpuprof dryrun --gpu=t4 -o $file -- $train 2
mkdir folder
gpuprof check x.gpuprof --budget=1GiB --junit=folder >out 2>&1
[ $? = 1 ] && grep -q 'is a folder' out
tell "a folder for JUnit is refused" $?
gpuprof dryrun --gpu=t4 --record -- $train 2 >out 2>&1
file=train_rt.gpuprof
keeps 2 gpuprof dryrun --gpu=t4 --record -- $train 2
gpuprof run --sim --record=folder -- $train 2 >out 2>&1
[ $? = 1 ] && rmdir folder
tell "a folder is refused" $?
ln -s nowhere link
gpuprof run --sim --force --record=link -- $train 2 >out 2>&1
[ $? = 1 ] && [ "$(readlink link)" = nowhere ]
tell "a link is refused" $?
PYTHONPATH=$root/python python3 - >out 2>&1 <<'END'
import os, pickle
from gpuprof import _files
open("s", "wb").write(b"old")
os.symlink("s", "l")
_files.write("l", b"new")
assert open("s", "rb").read() == b"new" and os.path.islink("l") and not [n for n in os.listdir(".") if n.endswith(".part")]
os.mkdir("d")
try:
    _files.write("d/none/x", b"")
except OSError:
    pass
END
tell "the Python package" $?
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
