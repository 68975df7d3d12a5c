#!/bin/sh
# SPDX-License-Identifier: MIT
# A script of Python is started with python3 where the kernel would not start it; one that has a first line of its own,
# and a program, are started as they are.
#   test_scripts.sh BUILD
# Run: script
set -u
gpuprof=$(cd "${1:?usage: test_scripts.sh BUILD}" && pwd)/bin/gpuprof
command -v python3 >/dev/null || { echo "skipped: no python3" && exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
passed=0 failed=0

says() { # WANTED ARGUMENT..: the first line of gpuprof's output
    wanted=$1
    shift
    said=$("$gpuprof" "$@" 2>&1 | head -1)
    if [ "$said" = "$wanted" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1)) && echo "FAILED  gpuprof $*: $said"
    fi
}

echo 'import sys; print(*sys.argv)' >train.py
cp train.py plain.py && chmod +x plain.py
printf '#!/bin/sh\necho a shell, "$@"\n' >own.py && chmod +x own.py
mkdir folder.py found && printf '#!/bin/sh\necho found in PATH\n' >found/other.py && chmod +x found/other.py
echo 'print("here")' >other.py
says "train.py --lr 3 -o x" train.py --lr 3 -o x
says "./train.py" ./train.py
says "train.py -n 2" run train.py -n 2
says "train.py a b" run --sim -- train.py "a b"
says "./plain.py" run ./plain.py
says "a shell, q" run ./own.py q
says "gpuprof: run: ./folder.py: Permission denied" run ./folder.py
says "gpuprof: none.py: no such command" none.py
says "here" run other.py
PATH=$work/found:$PATH says "found in PATH" run other.py
"$gpuprof" train.py 7 >/dev/null && echo 'raise SystemExit(7)' >train.py
"$gpuprof" train.py
[ $? = 7 ] && passed=$((passed + 1)) || { failed=$((failed + 1)) && echo "FAILED  the exit status"; }

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
