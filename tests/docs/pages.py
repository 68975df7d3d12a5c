# SPDX-License-Identifier: MIT
"""Finds the commands of a page of the documentation and the output that it shows below them.  Used by commands.py."""
import re

TOOLS = ("gpuprof", "make", "sudo", "docker", "podman", "kubectl", "helm", "pip", "python", "python3", "apt", "apt-get", "git",
         "systemctl", "kill", "cd", "mkdir", "PATH")


class Command:
    """One command: its line in the page, its text, the exit status that it should have, and the output below it."""

    def __init__(self, where, text, root):
        self.where, self.root, self.shown, self.status = where, root, [], 0
        match = re.search(r"#\s*exits (\d+)", text)
        if match:
            self.status = int(match.group(1))
        self.text = re.sub(r"\s+#\s.*$", "", text).strip()
        self.behind = self.text.endswith("&")


def blocks(text):
    """The fenced blocks of a page, as pairs of the number of their first line and their lines."""
    found, number = [], 0
    lines = text.split("\n")
    while number < len(lines):
        fence = re.match(r"\s*```(\w*)$", lines[number])
        number += 1
        if not fence:
            continue
        first = number
        while number < len(lines) and not re.match(r"\s*```$", lines[number]):
            number += 1
        if fence.group(1) in ("", "sh"):
            found.append((first + 1, lines[first:number]))
        number += 1
    return found


def joined(first, lines):
    """Pairs of number and line, where a line that ends in a backslash takes the next one."""
    result = []
    for number, line in enumerate(lines, first):
        if result and result[-1][1].endswith("\\"):
            result[-1][1] = result[-1][1][:-1] + line.strip()
        else:
            result.append([number, line])
    return result


def commands(name, text):
    """The commands of a page in their order.  In a block with prompts ("$ ", or "# " for root) the other lines are output;
    in a block without, each line that begins with a tool's name is a command."""
    found = []
    for first, lines in blocks(text):
        prompts = any(line.startswith("$ ") for line in lines) or any(re.match(r"# (gpuprof|mkdir|systemctl) ", line) for line in lines)
        below = None
        for number, line in joined(first, lines):
            where = f"{name}:{number}"
            if prompts and re.match(r"[$#] ", line):
                below = Command(where, line[2:], line.startswith("#"))
                found.append(below)
            elif prompts and below:
                below.shown.append(line)
            elif not prompts and re.split(r"[\s=]", line)[0] in TOOLS:
                found.append(Command(where, line, False))
    return found


def missing(shown, real):
    """The words of the shown output that the real one lacks.  Numbers and short words may differ; "..." stands for anything."""
    words = set()
    for line in shown:
        line = re.sub(r"\S*\.\.\.\S*", " ", line)
        words |= set(re.findall(r"(?<![\w/.])[A-Za-z_][\w.:/-]*[A-Za-z_]{3,}(?![\w/])", line))
    return sorted(word for word in words if word.rstrip(".:,") not in real)


def self_test():
    page = "a\n```\n$ gpuprof top &\n$ gpuprof leaks x \\\n   -y  # exits 1, as here\nfound 3 leaks ...\n```\n```yaml\ngpuprof: no\n```\n```\ngpuprof a # b\nnot this\n```\n"
    got = commands("p", page)
    return ([(one.where, one.text, one.status, one.behind) for one in got] ==
            [("p:3", "gpuprof top &", 0, True), ("p:4", "gpuprof leaks x -y", 1, False), ("p:12", "gpuprof a", 0, False)] and
            got[1].shown == ["found 3 leaks ..."] and missing(got[1].shown, "found 4 leaks") == [] and
            missing(got[1].shown, "lost 4 leaks") == ["found"])
