# SPDX-License-Identifier: MIT
# What a new user does, in the order of docs/install.md.  Sourced; the first failure ends the test.
set -eu -o pipefail
cd /opt
pass() { echo "PASSED $*"; }
use() {
    gpuprof --version
    gpuprof run --sim --record=/opt/r.gpuprof -- python3 train.py
    gpuprof report -o /opt/page.html /opt/r.gpuprof
    grep -q '<html' /opt/page.html
    gpuprof peak /opt/r.gpuprof >/opt/peak
    grep -q '16 x linear' /opt/peak
    # Python's call sites are known from CPython 3.10.
    ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || grep -q 'train.py:' /opt/peak
    pass "a recording and its page"
}
use_more() {
    gpuprof run --sim -- python3 train.py 60 &
    sleep 1
    { sleep 3; printf q; } | script -qec 'stty rows 30 cols 120; gpuprof top' /dev/null >/opt/top.out
    grep -aq 'python3 train.py' /opt/top.out
    gpuprof stat >/opt/stat
    grep -q 'python3' /opt/stat
    wait
    pass "top and stat"
    gpuprof run --sim --allocator=pytorch -- python3 train.py 4
    pass "an allocator"
    gpuprof run --sim -- python3 -c 'import gpuprof, runpy, sys
sys.argv = ["train.py", "4"]
runpy.run_path("train.py")
assert gpuprof.is_active() and gpuprof.max_memory_allocated() >= 4 << 26, gpuprof.memory_summary()'
    pass "the Python module"
}
