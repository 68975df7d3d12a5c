# SPDX-License-Identifier: MIT
"""A Python program that has gpuprof attached to itself, in two processes. Outside, serve() starts the program and does what it
asks for by lines on its output; inside, the program counts its checks and asks.  Both halves of a test import this."""
import json, os, pickle, subprocess, sys, threading, time

passed = failed = 0
pid = str(os.getpid())


def clean(build):
    """What comes before a command without gpuprof.  The simulator's libraries stay first: else a PyTorch finds NVIDIA's CUPTI by its
    run path, and that of CUDA 13.2 calls itself without end where the driver is not NVIDIA's."""
    sim = os.path.join(os.path.abspath(build), "lib/gpuprof/sim/libgpuprof-sim.so")
    return ["env", "-u", "CUDA_INJECTION64_PATH", "-u", "NVTX_INJECTION64_PATH", "LD_PRELOAD=" + sim]


def serve(build, program, **more):
    """Starts the program on two simulated GPUs, without gpuprof; returns its exit status. A line "run ARGUMENTS ; ARGUMENTS" runs
    these commands, and is answered with their status and output. more: a word and what answers its line."""
    command = os.path.join(build, "bin/gpuprof")

    def run(text):
        status, said = 0, ""
        for one in text.split(" ; "):
            done = subprocess.run([command, *one.split()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            status, said = status or done.returncode, said + done.stdout
        return status, said

    answers = {"run": run, **more}
    kid = subprocess.Popen([command, "run", "--sim=devices=2", "--", *program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for line in kid.stdout:
        word, _, rest = line.strip().partition(" ")
        if word in answers:
            print(json.dumps(answers[word](rest)), file=kid.stdin, flush=True)
        else:
            print(line, end="", flush=True)
    return kid.wait()


def serve_torch(build, program, *arguments, **more):
    """serve() for a program in the root of tests/real/torch-root."""
    root = os.environ.get("GPUPROF_TORCH_ROOT") or os.path.join(build, "real/torch-root")
    inside = os.path.join(os.path.dirname(os.path.abspath(program)), "inside")
    return serve(build, [inside, root, *clean(build), "python3", os.path.abspath(program), "inside", *arguments], **more)


def check(what, have, want):
    global passed, failed
    if have == want:
        passed += 1
    else:
        failed += 1
        print(f"FAILED {what}: {have!r}, not {want!r}", flush=True)


def ask(*words):
    """Asks, and waits in a read, with the GIL given up."""
    print(*words, flush=True)
    return json.loads(sys.stdin.readline())


def command(*words):
    """Runs gpuprof outside, while this thread runs Python."""
    answer = []
    reader = threading.Thread(target=lambda: answer.append(ask("run", *words)))
    reader.start()
    while reader.is_alive():
        time.sleep(0.001)
    return answer[0]


def devices():
    status, text = command("stat", "--json", "-p", pid)
    return [d for d in json.loads(text)["processes"][0]["devices"] if d["device"] >= 0]


def handed_out(segments):
    """The blocks of a snapshot that are handed out, of all devices."""
    return sorted((s["device"], b["address"], b["size"]) for s in segments for b in s["blocks"] if b["state"] == "active_allocated")


def listed():
    """Those of gpuprof's snapshot of this process, or what the command said."""
    path = f"/tmp/gpuprof-test-blocks-{pid}.pickle"
    status, text = command("snapshot", "-o", path, "-p", pid)
    if status:
        return text
    with open(path, "rb") as file:
        got = pickle.load(file)
    os.unlink(path)
    return handed_out(got["segments"])


def finish():
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed != 0)
