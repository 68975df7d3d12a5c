#!/bin/sh
# SPDX-License-Identifier: MIT
# Reads a recording where the files of the program are below another folder, as those of a container are: test_symfs.sh BUILD_DIR
# Run: script
set -eu
cd "$(dirname "$0")/../.."
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
check() { # WHAT TEXT WANTED: 1 if the text has remember_metrics (leak_rt.c:LINE)
    if printf '%s' "$2" | grep -q 'remember_metrics (leak_rt.c:'; then found=1; else found=0; fi
    [ "$found" = "$3" ] || { printf 'FAILED  %s\n%s\n' "$1" "$2"; exit 1; }
    passed=$((passed + 1))
}
mkdir "$work/app" "$work/image" "$work/other"
cp "$build/examples/leak_rt" "$work/app/leak_rt"
"$build/bin/gpuprof" run --sim --record="$work/x.gpuprof" -- "$work/app/leak_rt" --steps 40 --pace 5 >/dev/null 2>&1
mkdir -p "$work/image$work" "$work/other$work"
mv "$work/app" "$work/image$work/"
for command in "peak" "report" "leaks" "export --format=collapsed --weight=peak"; do
    # shellcheck disable=SC2086 # some words
    check "$command without the files" "$("$build/bin/gpuprof" $command "$work/x.gpuprof" 2>&1)" 0
    # shellcheck disable=SC2086
    check "$command with them" "$("$build/bin/gpuprof" $command --symfs="$work/image" "$work/x.gpuprof" 2>&1)" 1
done
# With --symbols the recording itself has the names.
mkdir "$work/app"
cp "$build/examples/leak_rt" "$work/app/leak_rt"
"$build/bin/gpuprof" run --sim --record="$work/y.gpuprof" --symbols -- "$work/app/leak_rt" --steps 40 --pace 5 >/dev/null 2>"$work/said"
"$build/bin/gpuprof" report --json "$work/y.gpuprof" >"$work/before"
"$build/bin/gpuprof" run --sim --stacks=all -- "$work/app/leak_rt" --steps 1000 --pace 10 >/dev/null 2>&1 &
job=$!
for _ in $(seq 200); do
    pid=$(pgrep -P "$job" -x leak_rt) && "$build/bin/gpuprof" record -q --symbols --duration 1 -p "$pid" -o "$work/z.gpuprof" 2>/dev/null && break
    sleep 0.1
done
kill "$job"
wait "$job" || true
rm -r "$work/app"
"$build/bin/gpuprof" report --json "$work/y.gpuprof" >"$work/after"
cmp "$work/before" "$work/after" || { echo "FAILED  the report differs without the files"; exit 1; }
for file in y z; do
    check "$file: a recording with names" "$("$build/bin/gpuprof" leaks "$work/$file.gpuprof" 2>&1; "$build/bin/gpuprof" peak "$work/$file.gpuprof" 2>&1)" 1
done
grep -q 'y.gpuprof: has the names of [0-9]* addresses' "$work/said" || { cat "$work/said"; exit 1; }
# Another build below the folder gives no name, and neither does a link that leads out of it.
mkdir "$work/other$work/app"
cp "$build/examples/train_rt" "$work/other$work/app/leak_rt"
check "another build" "$("$build/bin/gpuprof" peak --symfs="$work/other" "$work/x.gpuprof" 2>&1)" 0
ln -sf "$work/image$work/app/leak_rt" "$work/other$work/app/leak_rt"
check "a link out of the folder" "$("$build/bin/gpuprof" peak --symfs="$work/other" "$work/x.gpuprof" 2>&1)" 0
echo "$passed passed, 0 failed, 0 skipped"
