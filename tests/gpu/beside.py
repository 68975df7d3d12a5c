#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""beside.py: the same programs on this GPU and on the simulated one, side by side, number by number.

    beside.py [--gpu=NAME] [--json=FILE] [--jobs=N] [CASE...]   compares; NAME is the simulated GPU, h100-80g
    beside.py --case CASE                                       runs one case: a line "NAME VALUE..." for each step

It needs a GPU and a PyTorch; a case whose packages are not here is absent.  Each case runs on the GPU without gpuprof, on the GPU
under `gpuprof run --record`, and on the simulated GPU under the same.  Exit code: 0 nothing differs, 1 something does, 77 no GPU.

The columns of a step: what PyTorch holds and its peak since the last step (allocated, reserved), what gpuprof counts beyond
PyTorch's reserved memory, and what NVML says of the process.
"""

import argparse
import concurrent.futures
import ctypes
import json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
MIB = 1 << 20
LIMIT_S = 120


# ---- the cases --------------------------------------------------------------------------------------------------------------


def nvml_bytes():
    """What NVML says of this process, or None."""
    try:
        import pynvml

        pynvml.nvmlInit()
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        return next(
            (one.usedGpuMemory for one in pynvml.nvmlDeviceGetComputeRunningProcesses(device) if one.pid == os.getpid()), None
        )
    except Exception:
        return None


def step(name, *more):
    import torch

    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    torch_numbers = [
        stats["%s_bytes.all.%s" % key]
        for key in (("allocated", "current"), ("allocated", "peak"), ("reserved", "current"), ("reserved", "peak"))
    ]
    beyond = None
    if os.environ.get("CUDA_INJECTION64_PATH"):
        import gpuprof

        beyond = gpuprof.memory_stats(0)["reserved_bytes.all.current"] - torch_numbers[2]
    print("@step", name, json.dumps({"torch": torch_numbers, "beyond": beyond, "nvml": nvml_bytes(), "more": more}), flush=True)
    torch.cuda.reset_peak_memory_stats()


def device():
    """Attributes and sizes."""
    cuda = ctypes.CDLL("libcuda.so.1")
    value, size, name, context = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(100), ctypes.c_void_p()
    free = ctypes.c_size_t()
    assert cuda.cuInit(0) == 0
    cuda.cuDriverGetVersion(ctypes.byref(value))
    print("@value driver", value.value)
    cuda.cuDeviceGetName(name, 100, 0)
    print("@value name", name.value.decode())
    cuda.cuDeviceTotalMem_v2(ctypes.byref(size), 0)
    print("@value total", size.value)
    for i in range(1, 160):
        code = cuda.cuDeviceGetAttribute(ctypes.byref(value), i, 0)
        print("@value attribute%d" % i, value.value if code == 0 else "error%d" % code)
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    cuda.cuCtxSetCurrent(context)
    cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(size))
    print("@value free", free.value)
    print("@value info_total", size.value)
    for i in range(0, 10):
        code = cuda.cuCtxGetLimit(ctypes.byref(size), i)
        print("@value limit%d" % i, size.value if code == 0 else "error%d" % code)
    before = free.value
    pointer, base, length = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_size_t()
    for asked in (1, 512, 1 << 16, 1 << 20, (1 << 20) + 1, 2 << 20, (2 << 20) + 1, 3 << 20, 33 << 20):
        pointers = []
        for _ in range(8):
            code = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(asked))
            pointers.append(pointer.value)
        cuda.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(length), pointer)
        cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(size))
        print("@value eight_of_%d" % asked, before - free.value, length.value, pointers[1] - pointers[0])
        for one in pointers:
            cuda.cuMemFree_v2(ctypes.c_uint64(one))
        cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(size))
        print("@value after_%d" % asked, before - free.value)
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        for version in (None, getattr(pynvml, "nvmlMemory_v2", None)):
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version) if version else pynvml.nvmlDeviceGetMemoryInfo(handle)
            for field in ("total", "reserved", "free", "used"):
                if hasattr(memory, field):
                    print("@value nvml%s_%s" % (2 if version else "", field), getattr(memory, field))
        print("@value nvml_process", nvml_bytes())
    except Exception as error:
        print("@value nvml", str(error).replace(" ", "_"))


def libraries():
    """What NVIDIA's libraries take, one after the other."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.empty(1, device="cuda")
    step("context")
    half = dict(device="cuda", dtype=torch.bfloat16)
    a = torch.randn(1024, 1024, device="cuda")
    step("random")
    a @ a
    step("matmul")
    x = torch.randn(1024, 1024, **half)
    x @ x
    step("matmul_bf16")
    nn.functional.linear(x, x, x[0])
    step("linear_bias")
    torch._scaled_mm(
        x.to(torch.float8_e4m3fn),
        x.to(torch.float8_e4m3fn).t(),
        torch.ones(1, device="cuda"),
        torch.ones(1, device="cuda"),
        out_dtype=torch.bfloat16,
    )
    step("scaled_mm")
    torch.bmm(torch.randn(8, 256, 256, device="cuda"), torch.randn(8, 256, 256, device="cuda"))
    step("bmm")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        a @ a
    torch.cuda.synchronize()
    step("matmul_other_stream")
    a.requires_grad_()
    (a @ a).sum().backward()
    step("matmul_backward")
    image, conv = torch.randn(16, 64, 56, 56, device="cuda"), nn.Conv2d(64, 128, 3, padding=1).cuda()
    with torch.no_grad():
        conv(image)
        step("conv")
        conv.to(torch.bfloat16)(image.to(torch.bfloat16))
        step("conv_bf16")
        conv.to(memory_format=torch.channels_last)(image.to(torch.bfloat16, memory_format=torch.channels_last))
        step("conv_bf16_nhwc")
    conv = nn.Conv2d(64, 128, 3, padding=1).cuda()
    conv(image).sum().backward()
    step("conv_backward")
    torch.backends.cudnn.benchmark = True
    conv(image).sum().backward()
    step("conv_benchmark")
    torch.backends.cudnn.benchmark = False
    norm = nn.BatchNorm2d(64).cuda()
    norm(image).sum().backward()
    step("batch_norm")
    lstm = nn.LSTM(256, 512, 2).cuda()
    lstm(torch.randn(64, 16, 256, device="cuda"))[0].sum().backward()
    step("lstm")
    nn.functional.ctc_loss(
        torch.randn(50, 4, 20, device="cuda").log_softmax(2),
        torch.randint(1, 20, (4, 10)),
        torch.full((4,), 50, dtype=torch.int32),
        torch.full((4,), 10, dtype=torch.int32),
    )
    step("ctc")
    q = torch.randn(2, 16, 2048, 128, **half, requires_grad=True)
    from torch.nn.attention import SDPBackend, sdpa_kernel

    for backend in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH"):
        with sdpa_kernel(getattr(SDPBackend, backend)):
            nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
        q.grad = None
        step(backend.lower())
    s = torch.randn(512, 512, device="cuda")
    for name, function in (
        ("fft", lambda: torch.fft.fft2(torch.randn(64, 512, 512, device="cuda"))),
        ("rfft", lambda: torch.fft.rfft(torch.randn(4096, 4096, device="cuda"))),
        ("cholesky", lambda: torch.linalg.cholesky(s @ s.T + 512 * torch.eye(512, device="cuda"))),
        ("solve", lambda: torch.linalg.solve(s, s)),
        ("qr", lambda: torch.linalg.qr(s)),
        ("svd", lambda: torch.linalg.svd(s)),
        ("eigh", lambda: torch.linalg.eigh(s + s.T)),
        ("sparse_mm", lambda: torch.sparse.mm((s > 2).float().to_sparse(), s)),
        ("csr_mm", lambda: (s > 2).float().to_sparse_csr() @ s),
        ("csr_csr", lambda: (s > 2).float().to_sparse_csr() @ (s > 2).float().to_sparse_csr()),
        ("sort", lambda: torch.sort(torch.randn(10000000, device="cuda"))),
        ("unique", lambda: torch.unique(torch.randint(0, 1000, (1000000,), device="cuda"))),
        ("topk", lambda: torch.topk(torch.randn(64, 100000, device="cuda"), 50)),
        ("cumsum", lambda: torch.cumsum(torch.randn(10000000, device="cuda"), 0)),
        ("nonzero", lambda: torch.nonzero(s > 0)),
        ("multinomial", lambda: torch.multinomial(torch.ones(4, 32000, device="cuda"), 1)),
        ("randperm", lambda: torch.randperm(1000000, device="cuda")),
        (
            "grouped_mm",
            lambda: torch._grouped_mm(x, torch.stack([x, x]), offs=torch.tensor([512, 1024], device="cuda", dtype=torch.int32)),
        ),
    ):
        try:
            function()
            step(name)
        except Exception as error:
            step(name, type(error).__name__)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (s @ s).softmax(-1)
    graph.replay()
    step("graph")
    meeting = tempfile.mkdtemp()
    torch.distributed.init_process_group("nccl", init_method="file://" + os.path.join(meeting, "meet"), rank=0, world_size=1)
    torch.distributed.all_reduce(y)
    step("nccl")
    torch.distributed.all_reduce(torch.zeros(64 << 20, dtype=torch.uint8, device="cuda"))
    step("nccl_64_MiB")
    torch.distributed.destroy_process_group()
    step("nccl_ended")


def transforms():
    """Workspaces of cuFFT."""
    import torch

    def take(name, function, *sizes, **more):
        x = torch.zeros(*sizes, device="cuda", **more)
        step("before")
        y = function(x)
        step("%s_%s" % (name, "x".join(str(size) for size in sizes)))
        del x, y

    for length in (64, 1000, 1021, 1536, 4097, 6561, 9973, 65536, 100000, 1048576, 3000000, 16777216):
        take("fft", torch.fft.fft, max(1, (1 << 22) // length), length, dtype=torch.complex64)
        take("rfft", torch.fft.rfft, max(1, (1 << 22) // length), length)
        take("irfft", torch.fft.irfft, max(1, (1 << 22) // length), length, dtype=torch.complex64)
    take("fft_one", torch.fft.fft, 1 << 24, dtype=torch.complex64)
    take("fft_double", torch.fft.fft, 64, 65536, dtype=torch.complex128)
    for size in (256, 500, 509, 720, 1024):
        take("fft2", torch.fft.fft2, 4, size, size, dtype=torch.complex64)
        take("rfft2", torch.fft.rfft2, 4, size, size)
    for size in (64, 100, 101, 128):
        take("fftn", torch.fft.fftn, size, size, size, dtype=torch.complex64)
        take("rfftn", torch.fft.rfftn, size, size, size)


# input channels, height and width, output channels, kernel, stride, groups; batch 16
LAYERS = [
    (3, 224, 64, 7, 2, 1),
    (64, 56, 64, 1, 1, 1),
    (64, 56, 64, 3, 1, 1),
    (64, 56, 256, 1, 1, 1),
    (256, 56, 128, 1, 1, 1),
    (128, 56, 128, 3, 2, 1),
    (256, 28, 256, 3, 1, 1),
    (512, 28, 256, 1, 1, 1),
    (512, 14, 512, 3, 1, 1),
    (1024, 14, 2048, 1, 2, 1),
    (512, 7, 512, 3, 1, 1),
    (320, 64, 320, 3, 1, 1),
    (4, 64, 320, 3, 1, 1),
    (128, 28, 128, 3, 1, 128),
    (128, 28, 128, 3, 1, 32),
    (32, 112, 32, 5, 1, 1),
]


def convolutions():
    """Workspaces of cuDNN: the peak of a layer alone, forward and backward."""
    import torch
    from torch import nn

    for layer in LAYERS:
        channels, size, out, kernel, stride, groups = layer
        for kind, form, exact in (
            ("float32", "contiguous_format", False),
            ("float32", "contiguous_format", True),
            ("bfloat16", "contiguous_format", False),
            ("bfloat16", "channels_last", False),
            ("float16", "channels_last", False),
            ("float32", "channels_last", False),
        ):
            torch.backends.cudnn.allow_tf32 = not exact
            net = (
                nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False)
                .cuda()
                .to(getattr(torch, kind), memory_format=getattr(torch, form))
            )
            x = (
                torch.zeros(16, channels, size, size, device="cuda", dtype=getattr(torch, kind))
                .to(memory_format=getattr(torch, form))
                .requires_grad_()
            )
            step("before")
            y = net(x)
            name = "%s_%s%s_%s" % (
                "x".join(str(number) for number in layer),
                kind,
                "_exact" * exact,
                "nhwc" if form == "channels_last" else "nchw",
            )
            step("forward_" + name, x.nbytes, net.weight.nbytes, y.nbytes)
            gradient = torch.zeros_like(y)
            step("between")
            y.backward(gradient)
            step("backward_" + name)
            del net, x, y, gradient


def recurrent():
    """Workspaces and reserves of cuDNN's recurrent layers."""
    import torch
    from torch import nn

    torch.cuda.memory_allocated()
    for kind in ("LSTM", "GRU", "RNN"):
        for batch, length, width, hidden, layers, both, dtype in (
            (8, 64, 1024, 128, 1, False, "float32"),
            (8, 16, 1024, 128, 1, False, "float32"),
            (64, 16, 256, 512, 2, False, "float32"),
            (64, 16, 256, 512, 1, False, "float32"),
            (64, 64, 256, 512, 2, False, "float32"),
            (16, 16, 256, 512, 2, False, "float32"),
            (64, 16, 256, 512, 2, True, "float32"),
            (64, 16, 256, 512, 2, False, "float16"),
            (32, 100, 512, 1024, 3, False, "float16"),
            (1, 10, 64, 64, 1, False, "float32"),
            (128, 50, 128, 256, 4, False, "float32"),
        ):
            for training in (False, True):
                net = getattr(nn, kind)(width, hidden, layers, bidirectional=both).cuda().to(getattr(torch, dtype)).train(training)
                x = torch.zeros(length, batch, width, device="cuda", dtype=getattr(torch, dtype))
                step("before")
                with torch.set_grad_enabled(training):
                    y = net(x)[0]
                name = "%s_%s_%s_%s" % (
                    kind,
                    "x".join(str(number) for number in (batch, length, width, hidden, layers, 1 + both)),
                    dtype,
                    "train" if training else "eval",
                )
                step(name, sum(p.nbytes for p in net.parameters()), x.nbytes, y.nbytes)
                if training:
                    y.sum().backward()
                    step("backward_" + name)
                del net, x, y


def solvers():
    """Workspaces of cuSOLVER and cuSPARSE."""
    import torch

    torch.manual_seed(0)
    for size in (16, 64, 256, 512, 1024, 2048):
        s = torch.randn(size, size, device="cuda")
        s = s @ s.T + size * torch.eye(size, device="cuda")
        few = torch.where(torch.arange(size * size, device="cuda").view(size, size) % 50 == 0, s, torch.zeros((), device="cuda"))
        coordinates, rows = few.to_sparse(), few.to_sparse_csr()
        step("before")
        for name in ("cholesky", "inv", "qr", "svd", "svdvals", "eigh", "eigvalsh", "lu_factor"):
            step("%s_%d_of_%d" % (name, size, s.nbytes), len(getattr(torch.linalg, name)(s)) * 0)
        torch.linalg.solve(s, s)
        step("solve_%d" % size)
        torch.linalg.lstsq(s, s)
        step("lstsq_%d" % size)
        torch.linalg.cholesky(torch.stack([s] * 8))
        step("cholesky_8_%d" % size)
        torch.linalg.qr(torch.stack([s] * 8))
        step("qr_8_%d" % size)
        torch.sparse.mm(coordinates, s)
        step("coo_mm_%d_%d" % (size, coordinates._nnz()))
        rows @ s
        step("csr_mm_%d" % size)
        rows @ rows
        step("csr_csr_%d" % size)


def modules():
    """What NVML says of the process beyond PyTorch's memory, after the first use of each kernel."""
    import torch
    from torch import nn

    torch.empty(1, device="cuda")
    step("context")
    x, h = torch.zeros(4096, 4096, device="cuda"), torch.zeros(4096, 4096, device="cuda", dtype=torch.bfloat16)
    for name, function in (
        ("add", lambda: x + 1),
        ("softmax", lambda: x.softmax(-1)),
        ("norm", lambda: nn.functional.layer_norm(x, (4096,))),
        ("embedding", lambda: nn.functional.embedding(torch.zeros(8, 8, dtype=torch.long, device="cuda"), x)),
        (
            "adamw",
            lambda: (lambda p: (p.sum().backward(), torch.optim.AdamW([p]).step()))(
                torch.zeros(1000, device="cuda", requires_grad=True)
            ),
        ),
        ("attention", lambda: nn.functional.scaled_dot_product_attention(*[h.view(4, 16, 2048, 128)] * 3, is_causal=True)),
        ("matmul_bf16", lambda: h @ h),
        ("linear_bf16", lambda: nn.functional.linear(h, h, h[0])),
        ("matmul_fp16", lambda: h.half() @ h.half()),
        ("matmul_fp32", lambda: x @ x),
        ("conv_bf16", lambda: nn.functional.conv2d(h.view(16, 64, 128, 128), h.view(-1)[: 64 * 64 * 9].view(64, 64, 3, 3))),
        ("conv_fp32", lambda: nn.functional.conv2d(x.view(16, 64, 128, 128), x.view(-1)[: 64 * 64 * 9].view(64, 64, 3, 3))),
    ):
        function()
        step(name)


def compiled():
    """torch.compile: the plan of its buffers, Triton's kernels."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.LayerNorm(2048), nn.Linear(2048, 512)).cuda()
    step("model")
    fast = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for turn in range(3):
        loss = fast(torch.randn(4096, 512, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step("turn%d" % turn)


def program(path, *arguments):
    def run():
        sys.argv[:] = [path] + list(arguments)
        sys.path.insert(0, os.path.dirname(path))
        runpy.run_path(path, run_name="__main__")
        step("end")

    return run


REAL = os.path.join(TOP, "tests", "real")
CASES = {
    "device": device,
    "libraries": libraries,
    "transforms": transforms,
    "convolutions": convolutions,
    "recurrent": recurrent,
    "solvers": solvers,
    "modules": modules,
    "compiled": compiled,
    "gpt": program(os.path.join(REAL, "dryrun", "gpt.py"), "8", "4"),
}
for one in ("trainer", "trainer_workers", "generate", "lora", "accelerated", "lightning", "resnet"):
    CASES[one] = program(os.path.join(REAL, "frameworks", "train.py"), one)
for one in ("classifier", "cache", "images", "sentences", "streams"):
    CASES[one] = program(os.path.join(REAL, "table", "programs.py"), one)


# ---- the comparison ---------------------------------------------------------------------------------------------------------


def run(where, case, options):
    """Its steps and values, and what the recording says."""
    build = os.environ.get("GPUPROF_BUILD", os.path.join(TOP, "build"))
    command, python = os.path.join(build, "bin", "gpuprof"), os.environ.get("PYTHON", "python3")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUPROF_", "CUDA_INJECTION")) and k != "LD_PRELOAD"}
    env["PYTHONPATH"] = os.pathsep.join([os.path.join(TOP, "python")] + ([env["PYTHONPATH"]] if env.get("PYTHONPATH") else []))
    with tempfile.TemporaryDirectory() as folder:
        recording = os.path.join(folder, "recording")
        prefix = {
            "plain": [],
            "real": [command, "run", "--force", "--record=" + recording, "--"],
            "simulated": [command, "run", "--sim=gpu=%s,contents=none" % options.gpu, "--force", "--record=" + recording, "--"],
        }[where]
        env["TRITON_CACHE_DIR"] = env["TORCHINDUCTOR_CACHE_DIR"] = folder
        try:
            done = subprocess.run(
                prefix + [python, os.path.abspath(__file__), "--case", case],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                universal_newlines=True,
                timeout=LIMIT_S,
                cwd=folder,
            )
        except subprocess.TimeoutExpired:
            return {"code": "did not end within %d s" % LIMIT_S, "error": ""}
        said = {"code": done.returncode, "error": done.stderr[-1500:], "steps": {}, "values": {}, "text": []}
        for line in done.stdout.splitlines():
            words = line.split(None, 2)
            if len(words) == 3 and words[0] == "@step":
                said["steps"][words[1]] = json.loads(words[2])
            elif len(words) == 3 and words[0] == "@value":
                said["values"][words[1]] = words[2]
            else:
                said["text"].append(line)
        if os.path.exists(recording):
            if options.keep:
                shutil.copy(recording, os.path.join(options.keep, "%s.%s.gpuprof" % (case, where)))
            report = subprocess.run(
                [command, "report", "--json", recording], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True
            )
            if report.returncode == 0:
                said["devices"] = [
                    {key: one[key] for key in ("device", "allocated_peak_bytes", "reserved_peak_bytes")}
                    | {"owners": one["peak"]["owners"] if one.get("peak") else None}
                    for one in json.loads(report.stdout)["devices"]
                ]
            else:
                said["report"] = report.stderr[-300:]
    return said


def compare(case, plain, real, simulated):
    """Lines of what differs."""
    lines = []
    for name, said in (("on the GPU without gpuprof", plain), ("on the GPU", real), ("simulated", simulated)):
        if said["code"] != 0:
            lines.append("%s: exit %s: %s" % (name, said["code"], said["error"].strip()[-700:]))
    if lines:
        return lines
    if plain["text"] != real["text"]:
        lines.append("without gpuprof it prints %r, with it %r" % (plain["text"][-3:], real["text"][-3:]))
    for name, value in real["values"].items():
        other = simulated["values"].get(name)
        if value != other:
            lines.append("%-24s here %s, simulated %s" % (name, value, other))
    for name, seen in real["steps"].items():
        other, alone = simulated["steps"].get(name), plain["steps"].get(name)
        if alone["torch"] != seen["torch"]:
            lines.append("%-24s PyTorch without gpuprof %r, with it %r" % (name, alone["torch"], seen["torch"]))
        if other is None:
            lines.append("%-24s not reached on the simulated GPU" % name)
        elif (seen["torch"], seen["beyond"], seen["more"]) != (other["torch"], other["beyond"], other["more"]):
            lines.append(
                "%-24s here %r beyond %r %s, simulated %r beyond %r %s"
                % (name, seen["torch"], seen["beyond"], seen["more"] or "", other["torch"], other["beyond"], other["more"] or "")
            )
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", default="h100-80g")
    parser.add_argument("--json")
    parser.add_argument("--keep", help="a folder for the recordings")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    if options.case:
        return CASES[options.case]()
    if not any(os.path.exists(path) for path in ("/dev/nvidiactl", "/dev/dxg")):
        print("no GPU here")
        return 77
    names = options.cases or list(CASES)
    rows, differ = {}, 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waits = {
            (name, where): pool.submit(run, where, name, options) for name in names for where in ("plain", "real", "simulated")
        }
        for name in names:
            row = rows[name] = {where: waits[name, where].result() for where in ("plain", "real", "simulated")}
            lines = compare(name, **row)
            differ += bool(lines)
            print("%-8s%s" % ("differs" if lines else "equal", name), *lines, sep="\n    ", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    print("%d equal, %d differ" % (len(names) - differ, differ))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
