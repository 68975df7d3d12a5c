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
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
PY
