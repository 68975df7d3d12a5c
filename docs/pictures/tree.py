#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws the folders of the source tree and the arrows of their includes into docs/understand/architecture.md.

`docs/pictures/tree.py` writes the charts between the two marks of that page; `tree.py --check` compares and writes nothing
(tests/lint/check-picture).  GitHub draws the charts, which are Mermaid's.

A box is a folder with C files, with its number of lines.  An arrow leads from a folder to one whose headers it includes.  An
arrow is left out where other arrows lead to the same folder; otherwise every folder would have one to core/base.

Lines change with each commit.  So a number is rounded to hundreds, and the number in the page stays until the folder is a
fifth, and 200 lines, away from it.
"""
import collections
import os
import re
import sys

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = "docs/understand/architecture.md"
BEGIN, END = "<!-- tree.py begins -->\n", "<!-- tree.py ends -->\n"
# The charts: a title, the first folders whose folders it shows, each with its words, and those that it shows as one box.
CHARTS = (
    ("The library", {"src": "src: libgpuprof.so alone", "core": "core: libcore.a, in the library and in the command"}, ("include",)),
    ("The command", {"tools": "tools: gpuprof"}, ("core", "bpf", "include")),
    ("The simulated GPU, which includes nothing of the others", {"sim": "sim"}, ()),
)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.M)


def sources(top):
    """The C files below a first folder; tests and the page's build have none of the product's."""
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if name not in ("tests", "web"))
        for name in sorted(names):
            if name.endswith((".c", ".h", ".def")):
                yield os.path.join(folder, name)


def included(file, header):
    """The folder of a header of ours, or None."""
    top = file.split("/")[0]
    roots = ["sim", "sim/include"] if top == "sim" else [top, "core", "include", "bpf"]
    for root in [os.path.dirname(file), *roots]:
        if os.path.exists(os.path.join(root, header)):
            return os.path.dirname(os.path.normpath(os.path.join(root, header)))
    return None


def read_tree():
    """The lines of each folder, and the folders that it includes."""
    lines, arrows = collections.Counter(), collections.defaultdict(set)
    for top in sorted({top for _, tops, single in CHARTS for top in (*tops, *single)}):
        for file in sources(top):
            folder = os.path.dirname(file)
            with open(file, encoding="utf-8") as opened:
                text = opened.read()
            lines[folder] += text.count("\n")
            arrows[folder] |= {included(file, header) for header in INCLUDE.findall(text)} - {None, folder}
    return lines, arrows


def reached(arrows, folder):
    """Every folder to which arrows lead from this one."""
    found, left = set(), [folder]
    while left:
        for other in arrows[left.pop()] - found:
            found.add(other)
            left.append(other)
    return found


def fewer(arrows):
    """The arrows without those that a way over another folder makes up for.  Folders in a circle keep theirs."""
    far = {folder: reached(arrows, folder) for folder in arrows}
    return {folder: {to for to in tos if not any(to in far[by] and folder not in far[by] for by in tos if by != to)}
            for folder, tos in arrows.items()}


def mark(folder):
    """The name of a folder's box in the chart's text."""
    return re.sub(r"\W", "_", folder)


def rounded(lines, shown):
    """The number of lines to show, where the page shows `shown` (or None)."""
    if shown is not None and abs(lines - shown) <= max(200, shown / 5):
        return shown
    return max(100, round(lines / 100) * 100)


def merged(lines, arrows, single):
    """The lines and arrows where each of these first folders is one box."""
    box = lambda folder: folder.split("/")[0] if folder.split("/")[0] in single else folder
    sums, joined = collections.Counter(), collections.defaultdict(set)
    for folder, number in lines.items():
        sums[box(folder)] += number
        joined[box(folder)] |= {box(to) for to in arrows[folder]} - {box(folder)}
    return sums, joined


def chart(title, tops, single, lines, arrows, shown):
    """One chart of Mermaid's.  `shown` has the lines that the page shows in each box."""
    lines, arrows = merged(lines, arrows, single)
    out = [f"{title}:\n\n```mermaid\nflowchart TB\n"]

    def box(folder, name, indent):
        number = f"{rounded(lines[folder], shown.get(mark(folder))):,}".replace(",", " ")
        out.append(f'{indent}{mark(folder)}["{name}<br>{number}"]\n')

    boxes = {top: [folder for folder in sorted(lines) if folder.split("/")[0] == top] for top in (*tops, *single)}
    for top, words in tops.items():
        out.append(f'  subgraph {top}_["{words}"]\n    direction TB\n')
        for folder in boxes[top]:
            box(folder, folder.removeprefix(top + "/"), "    ")
        out.append("  end\n")
    for top in single:
        box(top, top, "  ")
    inside = sum(boxes.values(), [])
    few = fewer({folder: {to for to in arrows[folder] if to in inside} for folder in inside})
    for folder in inside:
        if few[folder]:
            out.append(f"  {mark(folder)} --> {' & '.join(sorted(map(mark, few[folder])))}\n")
    return "".join(out) + "```\n"


def draw(page):
    """The page with the charts of the tree as it is now."""
    before, begin, rest = page.partition(BEGIN)
    old, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"tree.py: {PAGE} lacks the lines '{BEGIN.strip()}' and '{END.strip()}'")
    shown = {box: int(number.replace(" ", "")) for box, number in re.findall(r'(\w+)\["[\w/]+<br>([\d ]+)"\]', old)}
    lines, arrows = read_tree()
    return before + begin + "\n".join(chart(*what, lines, arrows, shown) for what in CHARTS) + end + after


def main():
    os.chdir(TREE)
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    now = draw(page)
    if now == page:
        print(f"tree.py: {PAGE} shows the tree")
    elif "--check" in sys.argv[1:]:
        old, new = page.splitlines(), now.splitlines()
        for line in [f"-{line}" for line in old if line not in new] + [f"+{line}" for line in new if line not in old]:
            print(line)
        sys.exit(f"tree.py: {PAGE} shows another tree (- page, + tree): run docs/pictures/tree.py")
    else:
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(now)
        print(f"tree.py: wrote {PAGE}")


if __name__ == "__main__":
    main()
