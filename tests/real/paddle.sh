#!/bin/bash
# SPDX-License-Identifier: MIT
# Whether PaddlePaddle's released library still has the function that gpuprof's door needs (src/account/framework/reported.c), and
# calls it by a slot.  The library has NVIDIA's runtime inside, so it does not run on the simulated GPU: what its pools hand out has
# not been compared with its own totals.
#
#   tests/real/paddle.sh [BUILD]
#
# The package comes from the index (the row "paddle" of index.table).  Without it the test is skipped (exit status 77).
set -u
cd "$(dirname "$0")/../.."
root=$(tests/real/index paddle) || { echo "$root" | tail -n 1; exit 77; }
library=$(find "$root" -name libpaddle.so | head -n 1)
name=$(sed -n 's/.*\.name = "\(_ZN6paddle[^"]*\)".*/\1/p' src/account/framework/reported.c)
passed=0 failed=0
if [ -n "$name" ] && nm -D --defined-only "$library" | grep -q " T $name\$"; then
    passed=$((passed + 1))
    echo "ok      it is defined"
else
    failed=$((failed + 1))
    echo "FAILED  libpaddle.so does not define '$name'"
fi
if [ -n "$name" ] && readelf -rW "$library" | grep -q "R_X86_64_JUMP_SLOT .* $name "; then
    passed=$((passed + 1))
    echo "ok      it is called by a slot"
else
    failed=$((failed + 1))
    echo "FAILED  libpaddle.so has no slot for '$name'"
fi
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
