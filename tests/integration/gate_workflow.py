# SPDX-License-Identifier: MIT
"""Runs the steps of examples/ci/gpu-memory.yml as they stand: gate_workflow.py BUILD_DIR; called by test_gate.sh.

The repository is a small one with a base branch and a change; the step that installs the wheel is the only one that is
not run, the build's command is on PATH instead."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

BUILD = os.path.abspath(sys.argv[1])
TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def steps(text):
    """(name, commands, always) of the steps with a name; enough of YAML for this file."""
    for block in re.split(r"\n      - ", text)[1:]:
        name = re.match(r"name: (.*)", block)
        run = re.search(r"\n        run: (?:\|\n((?:          .*\n?)+)|(.*))", block)
        if name and run:
            yield name.group(1), run.group(1) or run.group(2), "if: always()" in block


def shell(command, folder, environment):
    return subprocess.run(
        ["bash", "-e", "-c", command], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def workflow(change):
    """Runs it for a change of train.py.  The outputs of the steps, in order, until the first that failed."""
    with open(os.path.join(TREE, "examples", "ci", "gpu-memory.yml"), encoding="utf-8") as file:
        text = file.read()
    with tempfile.TemporaryDirectory(prefix="gpuprof-ci-") as work:
        folder = os.path.join(work, "repository")
        os.makedirs(os.path.join(folder, "examples"))
        for name in "train.py", "gpu.py":
            shutil.copy(os.path.join(TREE, "examples", name), os.path.join(folder, "examples", name))
        git(folder, "init")
        git(folder, "add", ".")
        git(folder, "commit", "-m", "base")
        git(folder, "update-ref", "refs/remotes/origin/main", "HEAD")
        path = os.path.join(folder, "examples", "train.py")
        with open(path, encoding="utf-8") as file:
            source = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(change(source))
        summary = os.path.join(work, "summary")
        environment = dict(
            os.environ, PATH=os.path.join(BUILD, "bin") + ":" + os.environ["PATH"], GITHUB_ACTIONS="true", GITHUB_WORKSPACE=folder,
            GITHUB_BASE_REF="main", GITHUB_STEP_SUMMARY=summary, RUNNER_TEMP=work,
        )  # fmt: skip
        environment.update(re.findall(r"^      ([A-Z]+): (.*)$", text, re.M))
        outputs, failed, ran = {}, None, 0
        for name, command, always in steps(text):
            if name == "Install gpuprof" or (failed and not always):
                continue
            ran += 1
            result = shell(command, folder, environment)
            outputs[name] = result.stdout
            failed = failed or (name if result.returncode else None)
        assert ran >= 2, outputs
        with open(summary, encoding="utf-8") as file:
            return failed, outputs, file.read()


def main():
    failed, outputs, summary = workflow(lambda text: text)
    assert failed is None and "the peak is 1.281 GiB" in summary, (failed, outputs)
    failed, outputs, summary = workflow(lambda text: text.replace("    kept = []\n", "    kept = []\n    scratch = Tensor(2)\n"))
    assert failed == "No line needs more than before", (failed, outputs)
    assert re.search(r"::error file=examples/train\.py,line=\d+,title=GPU memory::line forward", outputs[failed]), outputs
    failed, outputs, summary = workflow(lambda text: text.replace("LAYERS = 16", "LAYERS = 32"))
    assert failed == "The program is within its budget" and "peak is 2.5" in summary, (failed, outputs, summary)
    print("3 passed, 0 failed, 0 skipped")


main()
