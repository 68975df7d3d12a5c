# SPDX-License-Identifier: MIT
# The Debian packages; tests/real/packages.sh starts it.  apt fetches what they depend on.
. /opt/use.sh
export DEBIAN_FRONTEND=noninteractive
files() { find / -xdev \( -path /opt -o -path /proc -o -path /sys -o -path /dev -o -path /tmp \) -prune -o -print | sort; }
apt-get update -qq
apt-get install -y -qq --no-install-recommends pkg-config gcc libc6-dev systemd libbpf1 libdw1 libelf1 libjansson4 libmicrohttpd12 \
    libncursesw6 libprotobuf-c1 libsqlite3-0 libtinfo6 libzstd1 zlib1g
files >/opt/before
apt-get install -y -qq --no-install-recommends /opt/*.deb
pass "installed"
[ "$(systemctl is-enabled gpuprof-agent)" = disabled ]
systemd-analyze verify --man=no /usr/lib/systemd/system/gpuprof-agent.service
pass "the agent's unit"
use
use_more
cat >/opt/program.c <<'END'
#include <gpuprof/gpuprof.h>
#include <stdio.h>
int main(void)
{
    printf("%s\n", gpuprof_version());
    return 0;
}
END
# shellcheck disable=SC2046 # options
gcc -Wall -Werror -o /opt/program /opt/program.c $(pkg-config --cflags --libs gpuprof)
[ "$(/opt/program)" = "$(pkg-config --modversion gpuprof)" ]
pass "a program that is linked with the library"
systemctl -q enable gpuprof-agent
dpkg -i /opt/gpuprof_*.deb >/dev/null # an upgrade keeps the choice
[ "$(systemctl is-enabled gpuprof-agent)" = enabled ]
pass "upgraded"
apt-get purge -y -qq gpuprof libgpuprof1 libgpuprof-dev python3-gpuprof
# Lists of the package manager, and Python's and the loader's caches, are not ours.
files | diff /opt/before - | grep '^[<>]' | grep -vE '/var/(lib|cache|log)/|__pycache__' && exit 1
! find / -xdev -path /opt -prune -o -print | grep -i gpuprof
pass "nothing is left"
