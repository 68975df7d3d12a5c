# sim: devices=4,gpu=h100-80g,shared=real-ranks,contents=none
"""Four ranks of a real PyTorch, each a process with a simulated GPU of its own: results of small collectives, objects,
messages, a graph, a group of two, and NVML's view of the devices that they share."""
import os
import subprocess
import sys
import tempfile

RANKS = 4


def same(what, ours, theirs):
    if ours != theirs:
        sys.exit(f"rank {rank}: {what}: {ours}, not {theirs}")


def collectives(torch, dist):
    def tensor(*values, dtype=torch.float32):
        return torch.tensor(values, dtype=dtype, device="cuda")

    for dtype in torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.float64:
        one = tensor(rank + 1, 2 * rank, dtype=dtype)
        dist.all_reduce(one)
        same(f"all_reduce of {dtype}", one.tolist(), [10, 12])
    one = tensor(rank, -rank)
    dist.all_reduce(one, op=dist.ReduceOp.MAX)
    same("the largest", one.tolist(), [3, 0])
    one = tensor(4.0 * rank)
    dist.all_reduce(one, op=dist.ReduceOp.AVG)
    same("the mean", one.tolist(), [6])
    dist.broadcast(one := tensor(rank + 7), 2)
    same("broadcast", one.tolist(), [9])
    into = tensor(*[0] * 8)
    dist.all_gather_into_tensor(into, tensor(rank, 10 * rank))
    same("all_gather", into.tolist(), [0, 0, 1, 10, 2, 20, 3, 30])
    part = tensor(0)
    dist.reduce_scatter_tensor(part, tensor(*range(rank, rank + 4)))
    same("reduce_scatter", part.tolist(), [6 + 4 * rank])
    swapped = tensor(0, 0, 0, 0)
    dist.all_to_all_single(swapped, tensor(*(10 * rank + i for i in range(4))))
    same("all_to_all", swapped.tolist(), [rank, 10 + rank, 20 + rank, 30 + rank])
    got = tensor(-1)
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, tensor(rank), (rank + 1) % 4), dist.P2POp(dist.irecv, got, (rank + 3) % 4)]
    ):
        work.wait()
    same("a message", got.tolist(), [(rank + 3) % 4])
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    one = tensor(rank)
    dist.all_reduce(one, group=pairs[rank // 2])
    same("a group of two", one.tolist(), [1 if rank < 2 else 5])
    large = torch.zeros(1 << 20, device="cuda")
    dist.all_reduce(large)
    dist.barrier()


def objects(torch, dist):
    one = [{"from": rank, "list": [1, 2, 3]}]
    dist.broadcast_object_list(one, src=1)
    same("an object", one, [{"from": 1, "list": [1, 2, 3]}])
    dist.broadcast_object_list(one := [rank], src=2, device=torch.device("cuda", rank))
    same("an object by way of a device", one, [2])
    every = [None] * RANKS
    dist.all_gather_object(every, ("rank", rank))
    same("objects", every, [("rank", i) for i in range(RANKS)])
    if not sys.modules.get("own_sitecustomize"):
        sys.exit("the program's own sitecustomize was not run")


def graph(torch, dist):
    one = torch.zeros(1, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(one)
    for i in range(3):
        one.copy_(torch.tensor([float(rank + i)]))
        graph.replay()
        same("a graph", one.item(), 6 + 4 * i)


def version():
    """The stand-in says that it is the NCCL whose place it takes: Debian's library has its version in its name, and the package
    of the index in the name of its folder."""
    import ctypes
    import glob
    from importlib import metadata

    files = glob.glob("/usr/lib/*/libnccl.so.2")
    packages = [one for one in metadata.distributions() if (one.metadata["Name"] or "").startswith("nvidia-nccl-cu")]
    installed = packages[0].version if packages else os.path.realpath(files[0]).split(".so.")[1]
    major, minor, patch = map(int, installed.split("."))
    number = ctypes.c_int()
    ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(number))
    same("NCCL's version", number.value, 10000 * major + 100 * minor + patch)


def worker():
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=RANKS)
    version()
    collectives(torch, dist)
    objects(torch, dist)
    graph(torch, dist)
    # What is used of the device by all processes, as the driver and NVML say.
    torch.cuda.synchronize()
    dist.barrier()
    free, total = torch.cuda.mem_get_info()
    used = [None] * RANKS
    dist.all_gather_object(used, total - free)
    if used[rank] < 485 << 20:  # NCCL's own, by docs/simulator.md
        sys.exit(f"rank {rank}: only {used[rank]} bytes are used, and NCCL alone takes 485 MiB")
    dist.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "sitecustomize.py"), "w") as file:
            file.write("import sys\nsys.modules['own_sitecustomize'] = sys.modules[__name__]\n")
        path = os.environ.get("PYTHONPATH", "")
        env = dict(os.environ, PYTHONPATH=f"{path}:{folder}", TORCH_NCCL_ENABLE_MONITORING="0", OMP_NUM_THREADS="1")
        store = os.path.join(folder, "store")
        ranks = [subprocess.Popen([sys.executable, __file__, str(i), store], env=env) for i in range(RANKS)]
        if any([one.wait() for one in ranks]):
            sys.exit("a rank failed")
    print(f"{RANKS} ranks agree")


rank = int(sys.argv[1]) if len(sys.argv) > 1 else -1
if rank >= 0:
    worker()
else:
    main()
