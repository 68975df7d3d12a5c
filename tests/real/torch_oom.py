# SPDX-License-Identifier: MIT
"""Small PyTorch programs that run out of memory, and the advice of gpuprof's page put to the proof: the same program is
run again with it. Advice that helps must let the program end, advice that is denied must not.

    tests/real/torch_oom.py BUILD CASES [FIRST]     (GPUPROF_TORCH_ROOT: the folder of tests/real/torch-root)

A program is a list of operations that follows from its number. One process imports PyTorch and forks for each run,
before CUDA is initialised (serve)."""
import collections
import json
import os
import random
import subprocess
import sys

MIB = 1 << 20
DEVICE = 2048
# What a program does beside allocating and freeing; each line is a part of the cases.
KINDS = ["large", "mixed", "fraction", "beside", "graphs", "mempool", "pooled", "expandable", "split", "streams", "emptied",
         "collected", "late", "odd"]
CONF = {"expandable": "expandable_segments:True", "split": "max_split_size_mb:64",
        "collected": "garbage_collection_threshold:0.6"}


# ---- the programs --------------------------------------------------------------------------------------------------

def size(rng, kind):
    if kind == "odd":
        return rng.choice([rng.randrange(1, 30 * MIB), rng.randrange(10 * MIB, 400 * MIB)])
    if kind == "mixed":
        return rng.choice([rng.randrange(512, MIB), rng.randrange(MIB, 12 * MIB), rng.randrange(30, 500) * MIB])
    return rng.choice([9, 12, 30, 47, 100, 150, 300, 520, 800, 1000]) * MIB


def program(number):
    """Operations; the last of them is meant to fail, but an earlier one may."""
    rng = random.Random(number)
    kind = KINDS[number % len(KINDS)]
    ops, live, names = [], [], 0
    if kind in ("fraction", "collected"):
        ops.append(["fraction", rng.choice([0.4, 0.5, 0.7])])

    def allocate(bytes_, how="alloc"):
        nonlocal names
        names += 1
        ops.append([how, names, bytes_])
        return names

    def some(count):
        for _ in range(count):
            if live and rng.random() < 0.5:
                ops.append(["free", live.pop(rng.randrange(len(live)))])
            else:
                live.append(allocate(size(rng, kind)))
            if kind == "streams" and rng.random() < 0.3:
                ops.append(["stream", rng.randrange(3)])
            if kind == "emptied" and rng.random() < 0.2:
                ops.append(["empty"])

    some(rng.randrange(2, 12))
    if kind == "graphs":
        for _ in range(rng.randrange(1, 3)):
            ops.append(["graph", rng.randrange(20, 150) * MIB])
        some(rng.randrange(0, 4))
    if kind == "mempool":
        ops.append(["pool", True])
        live.append(allocate(size(rng, kind)))
        ops.append(["free", live.pop()] if rng.random() < 0.5 else ["pool", True])
        ops.append(["pool", False])
        some(rng.randrange(0, 4))
    if kind == "late":
        for _ in range(40):
            name = allocate(rng.randrange(2, 40) * MIB)
            if rng.random() < 0.7:
                ops.append(["free", name])
            else:
                live.append(name)
    # Let go of a part, keep small ones beside it, and ask for much: what fragments.
    rng.shuffle(live)
    for name in live[:rng.randrange(len(live) + 1)]:
        ops.append(["free", name])
    for _ in range(rng.randrange(3)):
        allocate(rng.choice([9, 12, 30]) * MIB)
    if kind == "pooled":
        ops.append(["pool", True])
    last = rng.randrange(100, 1700) * MIB
    for _ in range(20): # until something fails
        allocate(last, "library" if kind == "beside" else "alloc")
        last = rng.randrange(100, 900) * MIB
    return kind, ops, CONF.get(kind, "")


# ---- inside PyTorch ------------------------------------------------------------------------------------------------

def execute(ops):
    """The number of operations done before one found no memory; None: all."""
    import ctypes

    import torch
    blocks, graphs, streams, pools = {}, [], {}, []
    runtime = ctypes.CDLL("libcudart.so.12")
    for at, op in enumerate(ops):
        try:
            if op[0] == "alloc":
                blocks[op[1]] = torch.empty(op[2], dtype=torch.uint8, device="cuda")
            elif op[0] == "free":
                blocks.pop(op[1], None)
            elif op[0] == "empty":
                torch.cuda.empty_cache()
            elif op[0] == "fraction":
                torch.cuda.set_per_process_memory_fraction(float(op[1]))
            elif op[0] == "stream":
                torch.cuda.set_stream(streams.setdefault(op[1], torch.cuda.Stream() if op[1] else
                                                         torch.cuda.default_stream()))
            elif op[0] == "pool":
                while pools:
                    pools.pop()[1].__exit__(None, None, None)
                if op[1]:
                    pool = torch.cuda.MemPool()
                    graphs.append(pool)
                    pools.append((pool, torch.cuda.use_mem_pool(pool)))
                    pools[-1][1].__enter__()
            elif op[0] == "graph":
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    first = torch.empty(op[1], dtype=torch.uint8, device="cuda")
                    second = torch.empty(op[1] // 2, dtype=torch.uint8, device="cuda")
                    del first, second
                    kept = torch.empty(2 * MIB, dtype=torch.uint8, device="cuda")
                graphs.append((graph, kept))
            elif op[0] == "library":
                pointer = ctypes.c_void_p()
                if runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(op[2])):
                    return at
                blocks[op[1]] = pointer
        except torch.OutOfMemoryError:
            return at
        except RuntimeError as error: # PyTorch 2.7 has no MemPools with them: that setting does not help there
            if "support expandable_segments" not in str(error):
                raise
            return at
    return None


def serve():
    import torch  # noqa: F401: before the forks
    print("ready", flush=True)
    for line in sys.stdin:
        run = json.loads(line)
        asked, answer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(answer)
            if run["conf"]:
                os.environ["PYTORCH_CUDA_ALLOC_CONF"] = run["conf"]
            failed = None
            try:
                failed = execute(run["ops"])
                print(json.dumps({"pid": os.getpid(), "failed": failed}), flush=True)
                if run["stay"] and failed is not None:
                    os.read(asked, 1)
            except BaseException as error: # noqa: B902: the parent waits for a line
                print(json.dumps({"pid": os.getpid(), "error": repr(error)}), flush=True)
            os._exit(0)
        os.close(asked)
        if run["stay"]:
            sys.stdin.readline()
        os.close(answer)
        os.waitpid(child, 0)


# ---- outside -------------------------------------------------------------------------------------------------------

class Server:
    def __init__(self, build):
        self.build = build
        env = dict(os.environ, PYTHONPATH="")
        self.process = subprocess.Popen(
            [f"{build}/bin/gpuprof", "run", f"--sim=memory={DEVICE}MiB", "--", "tests/real/inside",
             os.environ["GPUPROF_TORCH_ROOT"], "python3", "tests/real/torch_oom.py", "serve"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)
        self.answer("ready")

    def answer(self, begin="{"):
        for line in self.process.stdout:
            if line.startswith(begin):
                return line
        sys.exit("the process with PyTorch ended")

    def run(self, ops, conf, stay=False):
        """The number of operations that were done, or None; and the report if it stayed."""
        print(json.dumps({"ops": ops, "conf": conf, "stay": stay}), file=self.process.stdin, flush=True)
        end = json.loads(self.answer())
        report = None
        if "error" in end:
            sys.exit(f"{ops} with '{conf}': {end['error']}")
        if stay:
            if end["failed"] is not None:
                said = subprocess.run([f"{self.build}/bin/gpuprof", "stat", "--json", "-p", str(end["pid"])],
                                      capture_output=True, text=True, check=True).stdout
                report = json.loads(said)["processes"][0]["oom"]
            print(file=self.process.stdin, flush=True)
        return end["failed"], report


def joined(*confs):
    return ",".join(conf for conf in confs if conf)


def with_advice(name, ops, conf, report):
    """The program and its settings with a piece of advice; None: it is not one of PyTorch's allocator."""
    framework = report["framework"] or {}
    if name == "pytorch_expandable_segments":
        return ops, joined(conf, "expandable_segments:True")
    if name == "pytorch_max_split_size":
        return ops, joined(conf, f"max_split_size_mb:{framework['max_split_size_bytes'] // MIB}")
    if name == "raise_memory_fraction":
        return [op for op in ops if op[0] != "fraction"], conf
    if name == "empty_cache":
        return ops[:-1] + [["empty"], ops[-1]], conf
    if name == "lower_memory_fraction":
        left = framework["reserved_bytes"] + (report["free_bytes"] or 0) - report["requested_bytes"]
        return [["fraction", max(left / report["total_bytes"] - 0.001, 0.0)]] + ops, conf
    return None


class Proof:
    def __init__(self):
        self.counts = collections.Counter()
        self.wrong = []

    def check(self, number, server, kind, ops, conf, report):
        claims = [(name, True) for name in report["advice"]] + [(name, False) for name in report["advice_denied"]]
        if "no setting would have helped" in report["page"].replace("\n            ", " "):
            claims += [("pytorch_expandable_segments", False)]
        claims += [(name, None) for name in report["advice_unknown"]]
        for name, helps in dict.fromkeys(claims):
            tried = with_advice(name, ops, conf, report)
            if tried is None:
                continue
            failed, _ = server.run(*tried)
            truth = failed is None
            said = {True: "helps", False: "denied", None: "unknown"}[helps]
            self.counts[f"{name} {said}, and it {'does' if truth else 'does not'}"] += 1
            self.counts[f"of {kind}: {said}"] += 1
            if helps is not None and helps != truth:
                self.wrong.append(f"case {number} ({kind}): {name} {said}, but the program "
                                  f"{'ended well' if truth else f'failed at operation {failed} of {len(ops)}'}"
                                  f"\n{json.dumps(ops)} '{conf}'\n{report['page']}")


def main(build, cases, first):
    server, proof = Server(build), Proof()
    for number in range(first, first + cases):
        kind, ops, conf = program(number)
        failed, report = server.run(ops, conf, stay=True)
        if failed is None:
            proof.counts["did not run out of memory"] += 1
            continue
        if not report or report["device"] != 0:
            proof.wrong.append(f"case {number} ({kind}): no report")
            continue
        proof.counts["replayed" if (report["framework"] or {}).get("replayed") else "not replayed"] += 1
        proof.check(number, server, kind, ops[:failed + 1], conf, report)
    server.process.stdin.close()
    server.process.wait()
    for name in sorted(proof.counts):
        print(f"{proof.counts[name]:6} {name}")
    print("\n".join(proof.wrong))
    checked = sum(count for name, count in proof.counts.items() if ", and it does" in name and "unknown" not in name)
    if not checked:
        proof.wrong.append("nothing was checked")
    print(f"{checked} claims of {cases} programs put to the proof, {len(proof.wrong)} wrong")
    return 1 if proof.wrong else 0


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0))
