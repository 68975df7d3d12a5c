# SPDX-License-Identifier: MIT
"""Calls what PyTorch has of NVIDIA's mathematics libraries: each prints "ok" or "FAIL" and a reason."""
import warnings

import torch
from torch import linalg, nn

warnings.simplefilter("ignore")
gpu = "cuda"
failed = 0


def zeros(*size, **options):
    return torch.zeros(*size, device=gpu, **options)


def call(name, function):
    global failed
    try:
        function()
        torch.cuda.synchronize()
        print("ok  ", name)
    except Exception as error:  # whatever the library says
        failed += 1
        print("FAIL", name, type(error).__name__, str(error).split("\n")[0][:160])


def train(layer, *size, **options):
    def step():
        result = layer.to(gpu)(zeros(*size, requires_grad=True, **options))
        (result[0] if isinstance(result, tuple) else result).sum().backward()
    return step


batch = zeros(4, 64, 64)
one = batch[0]
many = one.to(torch.complex64)

# cuBLAS and cuBLASLt
for kind in torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128:
    call(f"matrix product, {kind}", lambda: one.to(kind) @ one.to(kind))
call("batched product", lambda: torch.baddbmm(batch, batch, batch))
call("dot products", lambda: (torch.dot(one[0], one[0]), torch.vdot(many[0], many[0]), torch.mv(one, one[0])))
call("linear layer", train(nn.Linear(64, 64), 32, 64))
call("8 bits", lambda: torch._int_mm(zeros(32, 64, dtype=torch.int8), zeros(64, 32, dtype=torch.int8)))
# cuFFT
call("transform", lambda: torch.fft.fft(one))
call("real transform and back", lambda: torch.fft.irfft2(torch.fft.rfft2(batch)))
call("transform in double precision", lambda: torch.fft.fftn(one.double()))
# cuSOLVER
for name in "cholesky inv det slogdet eigh eigvalsh svd svdvals qr pinv matrix_rank lu_factor cond ldl_factor".split():
    call(f"linalg.{name}", lambda: getattr(linalg, name)(one))
    call(f"linalg.{name}, batched", lambda: getattr(linalg, name)(batch))
    if name in ("eigh", "svd"):
        call(f"linalg.{name}, complex", lambda: getattr(linalg, name)(many))
call("linalg.solve", lambda: linalg.solve(batch, batch))
call("linalg.lstsq", lambda: linalg.lstsq(batch, batch))
call("linalg.solve_triangular", lambda: linalg.solve_triangular(one, one, upper=True))
call("ormqr", lambda: torch.ormqr(one, one[0], one))
# cuSPARSE
index = torch.tensor([0, 1, 2]).to(gpu)
sparse = torch.sparse_csr_tensor(torch.tensor([0, 1, 2, 3]).to(gpu), index, torch.ones(3).to(gpu), (3, 3))
dense = zeros(3, 3)
call("sparse by dense", lambda: sparse @ dense)
call("sparse by vector", lambda: sparse @ dense[0])
call("sparse by sparse", lambda: sparse @ sparse)
call("sampled product", lambda: torch.sparse.sampled_addmm(sparse, dense, dense))
call("sparse sum", lambda: sparse + sparse)
call("sparse triangle", lambda: torch.triangular_solve(dense, sparse))
# cuDNN
call("convolution", train(nn.Conv2d(64, 128, 3), 8, 64, 56, 56))
call("convolution, fp16, channels last",
     lambda: train(nn.Conv2d(64, 128, 3).half().to(memory_format=torch.channels_last), 8, 64, 56, 56, dtype=torch.half)())
call("convolution, one dimension", train(nn.Conv1d(3, 8, 3), 2, 3, 64))
call("convolution, three dimensions", train(nn.Conv3d(3, 8, 3), 2, 3, 8, 16, 16))
call("transposed convolution", train(nn.ConvTranspose2d(8, 4, 2, 2), 2, 8, 16, 16))
torch.backends.cudnn.benchmark = True
call("convolution, measured", train(nn.Conv2d(32, 32, 5, groups=4), 2, 32, 32, 32))
call("batch normalization", train(nn.BatchNorm2d(8), 4, 8, 16, 16))
for layer in nn.RNN, nn.GRU, nn.LSTM:
    call(f"{layer.__name__}", train(layer(32, 64, 2, bidirectional=True, dropout=0.1), 10, 4, 32))
call("LSTM, projected", train(nn.LSTM(32, 64, proj_size=16), 10, 4, 32))
packed = nn.utils.rnn.pack_padded_sequence(zeros(10, 4, 32), torch.tensor([10, 8, 5, 2]))
call("LSTM, packed", lambda: nn.LSTM(32, 64).to(gpu)(packed))
query = zeros(2, 4, 128, 64, dtype=torch.half, requires_grad=True)
with nn.attention.sdpa_kernel(nn.attention.SDPBackend.CUDNN_ATTENTION):
    call("attention", lambda: nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True).sum().backward())
# In a graph
graph = torch.cuda.CUDAGraph()


def captured():
    with torch.cuda.graph(graph):
        torch.mm(one, one)
    graph.replay()


call("captured product", captured)
print(f"{failed} failed")
