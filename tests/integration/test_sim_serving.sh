#!/bin/sh
# SPDX-License-Identifier: MIT
# The log messages of a server that `gpuprof dryrun` looks at: it takes those that it knows, and no message changes what the
# program does.
#   test_sim_serving.sh BUILD
# Run: script
set -u
build=$(cd "${1:?usage: test_sim_serving.sh BUILD}" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export GPUPROF_STANDIN_REPORT="$work/report"
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$build/lib/gpuprof/sim/python" python3 - 2>"$work/errors" <<'PY'
import logging
import os
import sys

import gpuprof_serving


class NoText:
    def __str__(self):
        raise RuntimeError("no text")


gpuprof_serving.listen(None)
logging.basicConfig(level=logging.INFO)
log = logging.getLogger("vllm.engine")
passed = failed = 0


def judge(what, ok):
    global passed, failed
    passed, failed = passed + ok, failed + (not ok)
    if not ok:
        print("FAILED ", what)


def survives(what, *message):
    try:
        log.info(*message)
        judge(what, True)
    except Exception as error:
        judge(f"{what}: {error!r}", False)


survives("a name that is missing", "%(missing)s", {"there": 1})
survives("a text that cannot be made", "%s", NoText())
survives("tokens", "GPU KV cache size: 40,960 tokens")
survives("a number without end", "Maximum concurrency for 5 tokens per request: " + "9" * 400 + "x")
survives("no number", "Maximum concurrency for , tokens per request: 1.2.3x")
survives("a request of no tokens", "max_total_num_tokens=7, context_len=0")
judge("nothing of these is reported", not os.path.exists(os.environ["GPUPROF_STANDIN_REPORT"]))
survives("requests", "Maximum concurrency for 4,096 tokens per request: 10.00x")
with open(os.environ["GPUPROF_STANDIN_REPORT"]) as report:
    judge("the room for requests", report.read() == f"{os.getpid()}\tvLLM\tcache\t40960 4096 1000\n")


class Data:
    """Of a tensor of the GPU, whose comparisons have no result there, or of the host."""

    shape = ()

    def __init__(self, device, value=0.0):
        self.device, self.value = device, value

    def new_full(self, shape, value, device):
        judge("a scale as large as it was", shape == self.shape)
        return Data(device, value)

    def __gt__(self, other):
        return self.device == "cpu" and self.value > other

    def __le__(self, other):
        return self.device == "cpu" and self.value <= other


class Scale:
    """As a parameter: its data may be exchanged."""

    def __init__(self, device):
        self.data = Data(device)

    is_cuda = property(lambda self: self.data.device == "cuda")
    __gt__ = lambda self, other: self.data > other
    __le__ = lambda self, other: self.data <= other


class Method:
    """A server's: what it decides by the signs of the scales."""

    def process_weights_after_loading(self, layer):
        if layer.k_scale > 0.0 and layer.v_scale > 0.0:
            return "of the checkpoint"
        if layer.k_scale <= 0.0 and layer.v_scale <= 0.0:
            return "none"
        raise AssertionError("one of them")


class Layer:
    """Of a cache."""


def layer_on(device):
    layer = Layer()
    layer.k_scale, layer.v_scale, layer.q_scale = Scale(device), Scale(device), 1.0
    return layer


method, layer = Method(), layer_on("cuda")
try:
    judge("no decision by a scale on the GPU", method.process_weights_after_loading(layer) is None)
except AssertionError:
    judge("no decision by a scale on the GPU", True)
module = type(sys)("kv_cache")
module.BaseKVCacheMethod = Method
gpuprof_serving.scales(module)
try:
    judge("a checkpoint without scales", method.process_weights_after_loading(layer) == "none")
except AssertionError as error:
    judge(f"a checkpoint without scales: {error!r}", False)
judge("the scales are on the GPU again", layer.k_scale.is_cuda and layer.v_scale.is_cuda)
host = layer_on("cpu")
host.k_scale.data.value = host.v_scale.data.value = 0.5
judge("scales of the host stay", method.process_weights_after_loading(host) == "of the checkpoint")
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
PY
