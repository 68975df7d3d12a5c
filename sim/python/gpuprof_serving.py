# SPDX-License-Identifier: MIT
"""vLLM and SGLang on the simulated GPU: what they write to their logs of the room for requests, and scales of their caches.

For `gpuprof dryrun`.  Their loggers are looked at, so a message that the chosen level leaves out is not seen.  The report of the stand-ins
(GPUPROF_STANDIN_REPORT) gets a line of kind "cache": tokens, tokens of the longest request, and a hundred times the
number of such requests for which there is room.
"""
import functools
import logging
import os
import re

# vLLM, in two messages, or in one since 0.30.
_TOKENS = re.compile(r"GPU KV cache size: ([0-9,]+) tokens")
_REQUESTS = re.compile(r"Maximum concurrency for ([0-9,]+) tokens per request: ([0-9.]+)x")
# SGLang, of the process that has the scheduler.
_TOTAL = re.compile(r"max_total_num_tokens=([0-9]+),.* context_len=([0-9]+)")
_tokens = None  # of vLLM's first message


def _number(text):
    return int(text.replace(",", ""))


def _report(server, tokens, request, hundredths):
    with open(os.environ["GPUPROF_STANDIN_REPORT"], "a") as report:
        report.write(f"{os.getpid()}\t{server}\tcache\t{tokens} {request} {hundredths}\n")


def _look(message):
    global _tokens
    found = _TOTAL.search(message)
    if found:
        tokens, request = map(int, found.groups())
        _report("SGLang", tokens, request, tokens * 100 // request)
    found = _TOKENS.search(message)
    if found:
        _tokens = _number(found[1])
    found = _REQUESTS.search(message)
    if found and _tokens is not None:
        _report("vLLM", _tokens, _number(found[1]), round(float(found[2]) * 100))


def listen(module):
    """After the module of a server, whose messages are looked at from now on."""
    handle = logging.Logger.handle
    if not os.environ.get("GPUPROF_STANDIN_REPORT") or hasattr(handle, "gpuprof"):
        return

    def call(self, record):
        if record.name.startswith(("vllm", "sglang")):
            try:
                _look(record.getMessage())
            except Exception:  # its text cannot be made, which the program's handlers report, or it only resembles one
                pass
        return handle(self, record)

    call.gpuprof = True
    logging.Logger.handle = call


_NONE = -1.0  # what both begin with, and keep where the checkpoint has no scale


def scales(module):
    """The scales of a quantized cache, of which both ask whether the checkpoint had them: by their sign, on the GPU.

    There a comparison has no result, so a scale would be neither positive nor not.
    """
    own = module.BaseKVCacheMethod.process_weights_after_loading

    @functools.wraps(own)
    def loaded(self, layer, *args, **kwargs):
        found = [getattr(layer, name, None) for name in ("k_scale", "v_scale", "q_scale", "prob_scale")]
        there = [(scale, scale.data) for scale in found if getattr(scale, "is_cuda", False)]
        for scale, data in there:
            scale.data = data.new_full(data.shape, _NONE, device="cpu")
        try:
            return own(self, layer, *args, **kwargs)
        finally:
            for scale, data in there:
                scale.data = data

    module.BaseKVCacheMethod.process_weights_after_loading = loaded
