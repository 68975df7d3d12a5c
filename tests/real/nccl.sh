#!/bin/bash
# SPDX-License-Identifier: MIT
# The memory that the stand-in for NCCL takes beside what NCCL's own host code takes, both on the simulated GPU, step by step.
#
#   tests/real/nccl.sh [BUILD]
#
# $GPUPROF_NCCL is a checkout of NCCL's source, a tag from 2.28 on.  Its host code is built without kernels, in some
# minutes, into build/real/nccl or $GPUPROF_REAL/nccl, with two changes: kernels are not launched, and each process makes
# multicast objects of its own, as it had to while the simulated driver did not share them.  The
# network is a plugin that transfers nothing.  Headers of CUDA 13 come from $CUDA_HOME (/usr/local/cuda), those of cccl
# from $GPUPROF_CCCL where they are elsewhere.  Without source or headers the test is skipped (exit status 77).
# Run: slow
set -u
cd "$(dirname "$0")/../.."
build=$(cd "${1:-build}" && pwd)
source=${GPUPROF_NCCL:-} cuda=${CUDA_HOME:-/usr/local/cuda}/include cccl=${GPUPROF_CCCL:-}
[ -f "$source/src/init.cc" ] || { echo "GPUPROF_NCCL names no source of NCCL"; exit 77; }
[ -n "$cccl" ] || cccl=$cuda/cccl
[ -f "$cuda/cuda_runtime.h" ] && [ -f "$cccl/cuda/atomic" ] || { echo "no headers of CUDA 13 and cccl"; exit 77; }
sim=$build/lib/gpuprof/sim out=${GPUPROF_REAL:-build/real}/nccl
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" && out=$(cd "$out" && pwd)
passed=0 failed=0

if ! [ -e "$out/libnccl.so.2" ] || [ "$source/src/init.cc" -nt "$out/libnccl.so.2" ]; then
    rm -rf "${out:?}"/*
    cp -r "$source/src" "$source/makefiles" "$work/" || exit 1
    sed -i '/^ncclResult_t ncclLaunchKernel(/,/{/ s/{$/{ return ncclSuccess;/' "$work/src/enqueue.cc"
    sed -i '/^static ncclResult_t nvlsAllocateMem/,/^}/ {
        s/mcprop.numDevices = comm->localRanks;/mcprop.numDevices = 1;/
        s/ncclNvlsGroupConnect(comm, shareableHandle, comm->localRankToRank\[0\], mcHandle)/ncclNvlsGroupCreate(comm, \&mcprop, comm->localRank, comm->localRanks, mcHandle, shareableHandle)/
    }' "$work/src/transport/nvls.cc"
    if sed -n '/^static ncclResult_t nvlsAllocateMem/,/^}/p' "$work/src/transport/nvls.cc" | grep -q 'GroupConnect\|numDevices = comm' ||
        ! grep -q '{ return ncclSuccess;' "$work/src/enqueue.cc"; then
        echo "FAILED  NCCL's source has another form than the changes expect"
        exit 1
    fi
    make -s -j"$(nproc)" -f tests/real/nccl/host.mk SOURCE="$work" OUT="$out" SIM="$sim" CUDA="$cuda $cccl" >"$work/log" 2>&1 ||
        { echo "FAILED  NCCL does not build"; tail -n 20 "$work/log"; exit 1; }
fi
cc -O1 -fPIC -shared -o "$work/libnccl-net-idle.so" tests/real/nccl/network.c &&
    cc -O1 -I"$out/include" -I"$cuda" -o "$work/take" tests/real/nccl/take.c -L"$out" -l:libnccl.so.2 -L"$sim" \
        -l:libcudart.so.13 -lpthread -Wl,--allow-shlib-undefined || exit 1
version=$(sed -n 's/^#define NCCL_\(MAJOR\|MINOR\|PATCH\) //p' "$out/include/nccl.h" | paste -sd.)
# The stand-in takes its version from the name of a package beside the library whose place it takes; here it is its own.
newest=$(sed -n 's/.*newest\[3\] = {\(.*\)};/\1/p' sim/nccl/version.c | tr -d ' ' | tr , .)
[ "$version" = "$newest" ] || echo "        NCCL $version beside the rules of $newest"

# board CAPABILITY LINKS GBITS: eight GPUs on an NVSwitch, a NIC behind the same bridge as each.
board() {
    local i pci='subsystem_vendor="" subsystem_device="" link_speed="32.0 GT/s PCIe" link_width="16"'
    echo '<system version="1">'
    for i in 0 1 2 3 4 5 6 7; do
        [ $((i % 4)) != 0 ] || echo "<cpu host_hash=\"0x0\" numaid=\"$((i / 4))\" affinity=\"ffffffff\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\">"
        echo "<pci busid=\"0000:8$i:00.0\" class=\"0x060400\" vendor=\"0x1000\" device=\"0xc030\" $pci>"
        echo "<pci busid=\"0000:0$((i + 1)):00.0\" class=\"0x030200\" vendor=\"0x10de\" device=\"0x2330\" $pci><gpu dev=\"$i\" sm=\"$1\" gdr=\"1\"><nvlink target=\"ffff:ff:ff.0\" count=\"$2\" tclass=\"0x068000\"/></gpu></pci>"
        echo "<pci busid=\"0000:6$i:00.0\" class=\"0x020700\" vendor=\"0x15b3\" device=\"0x1021\" $pci><nic><net name=\"idle$i\" dev=\"$i\" latency=\"0\" speed=\"$3\" port=\"1\" guid=\"0x$((i + 1))\" maxconn=\"65536\" gdr=\"1\"/></nic></pci>"
        echo '</pci>'
        [ $((i % 4)) != 3 ] || echo '</cpu>'
    done
    echo '</system>'
}
board 90 18 400000 >"$work/h100-80g"
board 100 18 400000 >"$work/b200"
board 80 12 200000 >"$work/a100-80g"

# both GPU RANKS LOCAL STEP...: the same program with both libraries.
both() {
    local gpu=$1 what
    shift
    what="$gpu, $* ${setting:-}"
    local -a how=(env ${setting:+"$setting"} GPUPROF_SIM="devices=8,gpu=$gpu,contents=none" NCCL_TOPO_FILE="$work/$gpu" NCCL_NET_PLUGIN=idle
        NCCL_SOCKET_IFNAME=lo NCCL_RAS_ENABLE=0 timeout -k 5 300)
    LD_LIBRARY_PATH=$out:$sim:$work "${how[@]}" "$work/take" "$@" >"$work/theirs" 2>"$work/error" </dev/null
    LD_LIBRARY_PATH=$sim/standin:$sim "${how[@]}" "$work/take" "$@" >"$work/ours" 2>>"$work/error" </dev/null
    if [ -s "$work/theirs" ] && cmp -s <(cut -f 1 "$work/theirs") <(cut -f 1 "$work/ours"); then
        passed=$((passed + 1))
        echo "ok      $what: $(cut -f 1 "$work/theirs" | sed 's/.* //' | paste -sd' ') MiB"
    else
        failed=$((failed + 1))
        echo "FAILED  $what: NCCL's own, then ours"
        paste -d '|' "$work/theirs" "$work/ours" | sed 's/^/        /'
        tail -n 5 "$work/error" | sed 's/^/        /'
    fi
}

both h100-80g 1 1 one one
both h100-80g 2 2 allreduce:256 allgather:1000000 broadcast:5 neighbours alltoall split:2 split:1 one window:4194304 window:8388608 register:65536
both h100-80g 4 4 allreduce:256 allreduce:64000000 scatter gather alltoall split:2
both h100-80g 8 8 allreduce:256 allreduce:1000000 neighbours alltoall
both h100-80g 2 1 allreduce:256 allreduce:64000000 allgather:10000000 neighbours
both h100-80g 4 1 allreduce:256 allreduce:64000000 reducescatter:10000000 neighbours alltoall window:4194304
both h100-80g 4 2 allreduce:256 allgather:10000000 neighbours alltoall across:2 allreduce:256
both h100-80g 8 4 allreduce:256 allreduce:64000000 allgather:10000000 neighbours alltoall
both b200 4 4 allreduce:256 allreduce:64000000 neighbours
both b200 8 4 allreduce:256 allreduce:64000000 allgather:10000000 neighbours
both a100-80g 4 4 allreduce:256 neighbours
both a100-80g 8 4 allreduce:256 allreduce:64000000 neighbours
for setting in NCCL_RUNTIME_CONNECT=0 NCCL_BUFFSIZE=8388608 NCCL_MAX_CTAS=4 NCCL_NVLS_ENABLE=0 \
    NCCL_COMM_SPLIT_SHARE_RESOURCES=1; do
    both h100-80g 2 2 allreduce:256 neighbours split:2
done
setting=NCCL_CUMEM_ENABLE=0 # small tables of a second communicator may lie in a page of the first one
both h100-80g 2 2 allreduce:256 neighbours
for setting in NCCL_RUNTIME_CONNECT=0 NCCL_PXN_DISABLE=1 NCCL_NET_SHARED_BUFFERS=0 NCCL_P2P_NET_CHUNKSIZE=262144; do
    both h100-80g 4 2 allreduce:256 alltoall
done
setting=NCCL_NVLS_ENABLE=0
both h100-80g 4 4 window:4194304 window:4194304
if [ -n "${GPUPROF_TEST_FULL:-}" ]; then # some minutes each
    setting=
    both h100-80g 16 8 allreduce:256 allreduce:64000000 allgather:10000000
    both h100-80g 16 8 allgather:10000000 alltoall
    both h100-80g 16 8 across:8 allreduce:256
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
