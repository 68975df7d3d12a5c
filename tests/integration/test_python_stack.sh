#!/bin/bash
# SPDX-License-Identifier: MIT
# Python stacks of real interpreters: compares each frame with the interpreter's own report, under disturbance, at shutdown, and in a
# program that opens libpython late; the first three also with AddressSanitizer in the probe.  Ends with "N passed, N failed, N skipped".
#
#   tests/integration/test_python_stack.sh [BUILD_DIR]
#
# PYTHON names the interpreter (python3), STRESS_SECONDS how long the disturbance lasts (2).  Only with GPUPROF_TEST_FULL also with
# AddressSanitizer, and each shutdown five times.
# Run: script first
set -u
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3} seconds=${STRESS_SECONDS:-2}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
note() { printf '%-7s %s\n' "$1" "$2"; }
fail() { failed=$((failed + 1)); note FAILED "$1"; tail -n 30 "$work/out" | cut -c1-2000 | sed 's/^/        /'; }
skip() { skipped=$((skipped + 1)); note skipped "$1: $2"; }
check() { # WHAT COMMAND...: must end with 0, and the totals that it prints are added
    local what=$1 line
    shift
    timeout -k 10 300 "$@" >"$work/out" 2>&1 </dev/null || { fail "$what (exit $?)"; return; }
    # A process that ends while another thread's report is being written ends with 0.
    if grep -qE 'Sanitizer|runtime error:' "$work/out"; then fail "$what (a sanitizer report)"; return; fi
    line=$(sed -nE 's/^([0-9]+) passed.*/\1/p' "$work/out" | tail -n 1)
    passed=$((passed + ${line:-1}))
    note ok "$what"
}
build() { # OUTPUT FLAGS...: the library's sources for Python stacks, and one more source
    local output=$1
    shift
    ${CC:-cc} -std=gnu11 -D_GNU_SOURCE -g -fno-omit-frame-pointer -fPIC -fvisibility=hidden -ftls-model=initial-exec -Wall -Wextra -Icore -Isrc -Iinclude \
        "$@" src/stack/python*.c src/stack/ownstack.c core/base/text.c core/base/thread.c core/base/loader.c core/base/opener.c core/base/highfd.c core/base/sandbox.c core/base/worker.c -o "$output" -ldl -lpthread >"$work/out" 2>&1
}

version=$("$python" -c 'import ctypes, sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || version=none
case $version in
3.1[0-4]) ;;
*) echo "Python $version is not one of 3.10 to 3.14"; exit 77 ;;
esac
modes=plain times="1 2"
[ -z "${GPUPROF_TEST_FULL:-}" ] || { modes="plain asan"; times="1 2 3 4 5"; }
for mode in $modes; do
    if [ $mode = plain ]; then
        flags="-O2 -DNDEBUG" settings=(PYTHONDONTWRITEBYTECODE=1)
    else
        flags="-O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined"
        # Python's own memory then comes from malloc, so that a stale read is detected; its own leaks are ignored.
        settings=(PYTHONDONTWRITEBYTECODE=1 PYTHONMALLOC=malloc "LD_PRELOAD=$(${CC:-cc} -print-file-name=libasan.so)" ASAN_OPTIONS=detect_leaks=0)
    fi
    # shellcheck disable=SC2086 # a list of flags
    build "$work/$mode.so" $flags -shared tests/python/stack_probe.c || { fail "building the probe ($mode)"; continue; }
    check "frames, Python $version ($mode)" env "${settings[@]}" "$python" -W ignore tests/python/stack_frames.py "$work/$mode.so"
    check "disturbance ($mode)" env "${settings[@]}" "$python" tests/python/stack_stress.py "$work/$mode.so" "$seconds"
    # A debugging allocator overwrites freed memory; AddressSanitizer detects reads of it anyway.
    for allocator in $([ $mode = plain ] && echo pymalloc pymalloc_debug malloc_debug || echo malloc); do
        check "objects held by frames stay after shutdown, $allocator ($mode)" env "${settings[@]}" PYTHONMALLOC="$allocator" "$python" \
            tests/python/stack_held.py "$work/$mode.so"
    done
    for i in $times; do
        check "daemon threads at shutdown, $i ($mode)" env "${settings[@]}" "$python" tests/python/stack_daemon.py "$work/$mode.so"
    done
done
# If the interpreter is a shared library: it is found although it is opened late and privately.
library=$("$python" -c 'import os, sysconfig as s
for folder in (s.get_config_var("LIBDIR"), s.get_config_var("LIBDIR") + "/" + (s.get_config_var("MULTIARCH") or "")):
    path = os.path.join(folder, s.get_config_var("INSTSONAME") or "")
    if path.endswith(".so.1.0") and os.path.exists(path): print(path); break')
if [ -z "$library" ]; then
    skip "a private libpython, opened late" "no shared libpython here"
elif build "$work/late" -O2 -rdynamic tests/python/stack_late.c; then
    check "a private libpython, opened late" env PYTHONHOME="$("$python" -c 'import sys; print(sys.base_prefix)')" "$work/late" "$library"
else
    fail "building the late program"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
