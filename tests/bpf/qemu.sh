#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs tests/integration/test_bpf and test_bpf_ends on Debian's 6.1 kernel in QEMU, without KVM (half a minute on an idle
# machine). The programs must load and count there too, with perf_event_open, since uprobe_multi came with 6.6. Cgroups
# are as on a hybrid host.
#
#   tests/bpf/qemu.sh BUILD [CRITERION_FILTER]     KERNEL=vmlinuz: another kernel than the package's; GPUPROF_TEST_VERBOSE=1
#
# Ends with "N passed, N failed, N skipped"; 77 if QEMU or the kernel is not available.
# Run: slow first
set -eu
cd "$(dirname "$0")/../.."
build=$(realpath "$1") filter=${2:-*}
work=$(mktemp -d)
qemu_pid=
trap '[ -z "$qemu_pid" ] || kill "$qemu_pid" 2>/dev/null; rm -rf "$work"' EXIT
[ "$(uname -m)" = x86_64 ] || { echo "the guest runs this machine's programs, so x86_64 is required"; exit 77; }
command -v qemu-system-x86_64 >/dev/null || { echo "no qemu-system-x86_64 (package qemu-system-x86)"; exit 77; }
command -v cpio >/dev/null || { echo "no cpio"; exit 77; }

kernel=${KERNEL:-}
if [ -z "$kernel" ]; then
    mkdir -p "$build/qemu"
    kernel=$(find "$build/qemu" -name 'vmlinuz-6.1.*' | head -n 1)
fi
if [ -z "$kernel" ]; then
    package=$(apt-cache search --names-only '^linux-image-6\.1\.0-[0-9]+-cloud-amd64$' | sort -V | tail -n 1 | cut -d ' ' -f 1)
    [ -n "$package" ] || { echo "no package of a 6.1 kernel is available"; exit 77; }
    (cd "$work" && apt-get download "$package" >/dev/null 2>&1 && dpkg -x ./*.deb .) || { echo "cannot fetch $package"; exit 77; }
    cp "$work"/boot/vmlinuz-6.1.* "$build/qemu/"
    kernel=$(find "$build/qemu" -name 'vmlinuz-6.1.*' | head -n 1)
fi

# The root file system has the tests, their programs, the library, the simulated GPU, a shell and their shared libraries.
root=$work/root
mkdir -p "$root"/{proc,sys,dev,tmp,bin,build/tests/integration,build/tests/programs}
cp "$build"/tests/integration/{test_bpf,test_bpf_ends} "$root/build/tests/integration/"
cp "$build"/tests/programs/{probe_fire,steps} "$root/build/tests/programs/"
cp -r "$build/lib" "$root/build/"
for tool in sh cp rm mkdir mount cat uname; do
    from=$(command -v $tool || true)
    [ -z "$from" ] || cp -L "$from" "$root/bin/"
done
add() { mkdir -p "$root$(dirname "$1")" && cp -Ln "$1" "$root$1"; }
# The libraries count too: they need libdl.so.2 and libpthread.so.0, for an older glibc, which no program here does.
for file in "$root"/bin/* "$root"/build/tests/*/* "$build"/lib/*.so "$build"/lib/gpuprof/sim/*.so*; do
    for library in $(ldd "$file" 2>/dev/null | grep -o '/[^ ]*'); do add "$library"; done
done
add "$(/sbin/ldconfig -p | awk '/libgcc_s.so.1.*x86-64/ { print $NF; exit }')" # opened by pthread_exit
cat >"$root/init" <<INIT
#!/bin/sh
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
mount -t tmpfs cgroup /sys/fs/cgroup
mkdir /sys/fs/cgroup/unified /sys/fs/cgroup/memory /sys/fs/cgroup/pids
mount -t cgroup2 unified /sys/fs/cgroup/unified
mount -t cgroup -o memory memory /sys/fs/cgroup/memory
mount -t cgroup -o pids pids /sys/fs/cgroup/pids
echo "kernel \$(uname -r)"
export GPUPROF_TEST_MANY=100 GPUPROF_TEST_SLOW=1 ${GPUPROF_TEST_VERBOSE:+GPUPROF_TEST_VERBOSE=1}
for test in test_bpf test_bpf_ends; do
    /build/tests/integration/\$test --jobs 1 --timeout 300 --tap=/tmp/tap --verbose --filter '$filter'
    cat /tmp/tap
done
echo the end
echo o >/proc/sysrq-trigger
while :; do :; done
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet) | gzip -1 >"$work/initrd"
# no_timer_check: on a loaded host the emulated timer fails the boot-time check and the kernel stops.
timeout "${QEMU_SECONDS:-540}" qemu-system-x86_64 -accel tcg -cpu max -smp 2 -m 1024 -nographic -no-reboot -net none \
    -kernel "$kernel" -initrd "$work/initrd" -append "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check" >"$work/out" 2>&1 </dev/null &
qemu_pid=$!
wait "$qemu_pid" || true
qemu_pid=
tr -d '\r' <"$work/out" >"$build/qemu/console"
grep -aoE "kernel 6\\..*|^(not )?ok .*|the verifier looked.*" "$build/qemu/console" || true
grep -aq '^the end' "$build/qemu/console" || { tail -n 20 "$build/qemu/console"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }
failed=$(grep -ac '^not ok' "$build/qemu/console" || true)
skipped=$(grep -acE '^ok.*# SKIP' "$build/qemu/console" || true)
passed=$(($(grep -acE '^ok' "$build/qemu/console" || true) - skipped))
[ "$failed" = 0 ] || tail -n 200 "$build/qemu/console"
[ "$passed" -gt 0 ] || failed=$((failed + 1))
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
