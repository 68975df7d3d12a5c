#!/bin/bash
# SPDX-License-Identifier: MIT
# What one Python stack costs, beside the interpreter's public interface in the same run: TSV of name, frames, ns.  PYTHON names the interpreter.
set -u
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
${CC:-cc} -std=gnu11 -D_GNU_SOURCE -O2 -DNDEBUG -fno-omit-frame-pointer -fPIC -shared -fvisibility=hidden -ftls-model=initial-exec -Icore -Isrc -Iinclude \
    tests/python/stack_probe.c src/stack/python*.c src/stack/ownstack.c core/base/text.c core/base/thread.c core/base/loader.c core/base/opener.c core/base/highfd.c core/base/sandbox.c \
    core/base/worker.c -o "$work/probe.so" -ldl -lpthread || exit 1
"${PYTHON:-python3}" tests/python/stack_bench.py "$work/probe.so"
