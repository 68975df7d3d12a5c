#!/bin/sh
# SPDX-License-Identifier: MIT
# Dr.Jit 1.5.0: drjit.whos() leaves out the zeros at the end of a whole number of mebibytes, so 10 and 100 MiB are both "1 MiB",
# and 20 MiB are "2 MiB".  The same function prints the sizes of arrays, of all storage and of the allocator, on CUDA as here on
# LLVM.  Who compares it with a GPU's used memory searches a leak of 99 MiB that is none.
#
# gpuprof prints bytes, or four digits with their unit.  The script needs libLLVM.so of the system.
. "$(dirname "$0")/lib.sh"
packages all drjit==1.5.0 numpy
cat >"$work/whos.py" <<'END'
import drjit
from drjit.llvm import Float

for mib in (5, 10, 20, 100, 128):
    array = drjit.arange(Float, (mib << 20) // 4)
    drjit.eval(array)
    drjit.sync_thread()
    for line in drjit.whos(as_string=True).splitlines():
        if " - Storage " in line:
            print(mib, "MiB:", line.split(":")[1].split(" on ")[0].strip())
    del array
END
"$work/all/bin/python3" -c 'from drjit.llvm import Float; import drjit; drjit.eval(drjit.arange(Float, 3))' >"$work/log" 2>&1 || {
    echo "skipped: Dr.Jit does not start its LLVM backend: $(tail -n 1 "$work/log")"
    exit 77
}
"$work/all/bin/python3" "$work/whos.py" 2>&1 | same '5 MiB: 5 MiB
10 MiB: 1 MiB
20 MiB: 2 MiB
100 MiB: 1 MiB
128 MiB: 128 MiB'
