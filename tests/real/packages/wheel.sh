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
[ $seconds -le 60 ] || { echo "from nothing to the page: $seconds s"; exit 1; }
pass "from nothing to the page in $seconds s"
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
