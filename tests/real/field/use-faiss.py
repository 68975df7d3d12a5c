# SPDX-License-Identifier: MIT
# sim: gpu=a100-40g
# faiss: temporary memory that is taken ahead, vectors, and what its resources say of both.
import faiss
import numpy
from common import done, equal, ledger, say, step


def held():
    return ledger()["allocated_bytes"]["current"]


resources = faiss.StandardGpuResources()
index = faiss.GpuIndexFlatL2(resources, 64, faiss.GpuIndexFlatConfig())
step("an index")
say("held", held())
index.add(numpy.zeros((10000, 64), "float32"))
step("10 000 vectors")
say("held", held())
index.add(numpy.zeros((10000, 64), "float32"))
step("20 000 vectors")
said = resources.getMemoryInfo()[0]
say(said)
# Beside what it says it holds cuBLAS's workspace.
equal("its own sum", held() - sum(size for _, size in said.values()), 4 << 20)
index.reset()
step("reset")
say("held", held())
del index, resources
step("gone")
equal("the end", held(), 0)
done()
