# SPDX-License-Identifier: MIT
# The wheel, in a root without a network; tests/real/packages.sh starts it.
. /opt/use.sh
# pip compiles and removes files of its own.
files() { find /opt/env ! -path '*/__pycache__*' ! -path '*/pip/*' ! -path '*/pip-*' ! -path '*/setuptools*' ! -path '*/pkg_resources*' | sort; }
started=$SECONDS
python3 -m venv /opt/env
files >/opt/before
PATH=/opt/env/bin:$PATH
pip install -q --no-index /opt/*.whl
use
seconds=$((SECONDS - started))
# On a machine that does much else, processor time counts.
times >/opt/times # not in a pipe: the shell at its end has times of its own
processor=$(awk 'NR == 2 { gsub(/[ms]/, " "); print int($1 * 60 + $2 + $3 * 60 + $4) }' /opt/times)
[ $seconds -le 60 ] || [ "$processor" -le 30 ] || { echo "from nothing to the page: $seconds s, $processor s of processor time"; exit 1; }
pass "from nothing to the page in $seconds s, $processor s of processor time"
use_more
pip uninstall -q -y gpuprof-cuda
files | diff /opt/before -
pass "nothing is left"
# pip before 21.3 cannot build where the tree is, and the package says so.
if pip --version | grep -qE '^pip (1|20|21\.[0-2])'; then
    ! pip install -q --no-index /opt/tree/python >/opt/old 2>&1
    grep -q 'use pip 21.3 or newer' /opt/old
    pass "an old pip"
else
    pip install -q --no-index /opt/tree/python
    (cd / && python3 -c 'import gpuprof; assert gpuprof.__version__ != "unknown"')
    pip uninstall -q -y gpuprof-cuda
    files | diff /opt/before -
    pass "the package from source"
fi
