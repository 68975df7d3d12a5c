#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs ranks of a dry run as tasks of Ray, and merges their answers.

    ray_ranks.py --world=N [--gpu=NAME] [--out=FOLDER] --ranks=LIST [--ranks=LIST]... -- CMD...

Each LIST is one task: a rank, or ranks that send to each other ("0,64,128").  The nodes of the cluster need gpuprof and CMD, and no
GPU and no shared folder: answers and recordings come back through Ray.  RAY_ADDRESS names a cluster; without it this machine is one.
The answer is printed, and FOLDER/page.html is the page."""
import argparse
import glob
import os
import subprocess
import sys
import tempfile

import ray


@ray.remote(num_cpus=1, max_retries=2)
def rank(options, command):
    """The answer and the recordings of some ranks, by name."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["gpuprof", "dryrun", "--json", f"--record={folder}/ranks.gpuprof", *options, "--", *command],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False)
        recordings = [open(path, "rb").read() for path in sorted(glob.glob(f"{folder}/*.gpuprof"))]
        return done.returncode, done.stdout, recordings, done.stderr[-4000:].decode(errors="replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--world", required=True)
    parser.add_argument("--gpu", default="h100-80g")
    parser.add_argument("--out", default=".")
    parser.add_argument("--ranks", action="append", required=True)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    # A cluster of this machine alone listens on no other address.
    own = {} if os.environ.get("RAY_ADDRESS") else {"_node_ip_address": "127.0.0.1", "include_dashboard": False}
    ray.init(log_to_driver=False, **own)
    os.makedirs(options.out, exist_ok=True)
    tasks = [rank.remote([f"--world={options.world}", f"--gpu={options.gpu}", f"--ranks={ranks}"], options.command)
             for ranks in options.ranks]
    answers, pages, failed = [], [], 0
    for ranks, (status, answer, recordings, said) in zip(options.ranks, ray.get(tasks)):
        if status not in (0, 3):  # 3: it does not fit
            print(f"ranks {ranks}: gpuprof ended with {status}:\n{said}", file=sys.stderr)
            failed = 1
        for ending, parts, names in ("json", [answer], answers), ("gpuprof", recordings, pages):
            for number, part in enumerate(parts if status in (0, 3) else []):
                names.append(f"{options.out}/ranks-{ranks}-{number}.{ending}")
                with open(names[-1], "wb") as file:
                    file.write(part)
    if not answers:
        sys.exit(1)
    sys.stdout.flush()
    merged = subprocess.run(["gpuprof", "dryrun", "--merge", *answers], check=False).returncode
    subprocess.run(["gpuprof", "dryrun", "--merge", *pages, "--force", "-o", f"{options.out}/page.html"], stdout=subprocess.DEVNULL,
                   check=False)
    sys.exit(failed or merged)


if __name__ == "__main__":
    main()
