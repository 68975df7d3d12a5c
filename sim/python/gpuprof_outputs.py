# SPDX-License-Identifier: MIT
"""For `gpuprof dryrun --try=outputs`: results of modules that the program keeps, by the line that called the module.

A result counts as kept when the line has called its module twice again and the result is still there, such as with
`outputs.append(model(x))`.  A run that only looks says which lines have such results; the run of a change detaches
each result and moves it to the host when the next call of its line has returned, as `.detach().cpu()` at that line
would.  Results that a backward pass still needs are no such case.  gpuprof_try.py calls this.
"""
import functools
import os
import weakref

_BIG = 16 << 20  # bytes: less does not matter, unless a graph is kept with them
_DEPTH = 4  # of containers in a result
_MOST = 4096  # results of a line that are looked at
_LINES = 3  # that are tried
_NODES = 64  # of a graph


class _Line:
    def __init__(self):
        self.calls, self.next = 0, 3  # the call after which it is looked at next
        self.kept = []  # (number of the call, weak reference to a tensor)
        self.count = self.bytes = 0  # the most that was kept at a time
        self.graph = self.needed = False  # kept for a backward pass; which there was
        self.hidden = False  # whether there is a graph could not be looked at


_lines = {}
_NOT = "/site-packages/", "/dist-packages/", os.path.dirname(os.path.abspath(__file__)) + "/"  # the program's own code


def _key(frame):
    """FILE:LINE of the program's own code that has made the call."""
    first = frame
    while frame is not None and any(part in frame.f_code.co_filename for part in _NOT):
        frame = frame.f_back
    frame = frame or first
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _tensors(result, torch, depth=0):
    if isinstance(result, torch.Tensor):
        if result.is_cuda and not isinstance(result, torch.nn.Parameter):
            yield result
        return
    parts = result.values() if isinstance(result, dict) else result if isinstance(result, (list, tuple)) else ()
    for part in parts if depth < _DEPTH else ():
        yield from _tensors(part, torch, depth + 1)


class _Hooks:
    used = False  # to look at a saved tensor would compute it again, or move it


def graph(module):
    """torch.autograd.graph: checkpointing and what moves saved tensors are such hooks."""
    init = module.saved_tensors_hooks.__init__

    @functools.wraps(init)
    def begin(self, *args, **kwargs):
        _Hooks.used = True
        init(self, *args, **kwargs)

    module.saved_tensors_hooks.__init__ = begin


def _has_graph(tensor, line):
    """A graph whose saved tensors were not freed by a backward pass."""
    if _Hooks.used:
        line.hidden |= tensor.grad_fn is not None
        return False
    nodes, seen = [tensor.grad_fn], set()
    while nodes and len(seen) < _NODES:
        node = nodes.pop(0)
        if node is None or node in seen:
            continue
        seen.add(node)
        for name in dir(node):
            if name.startswith("_saved_"):
                try:
                    saved = getattr(node, name)
                except RuntimeError:  # freed
                    return False
                if hasattr(saved, "grad_fn") and saved.is_cuda:
                    return True
        nodes += [parent for parent, _ in node.next_functions]
    return False


def _old(line):
    return [tensor for number, ref in line.kept if number < line.calls - 1 and (tensor := ref()) is not None]


def _look(line):
    line.kept = [(number, ref) for number, ref in line.kept if ref() is not None][-_MOST:]
    old = {tensor.untyped_storage().data_ptr(): tensor for tensor in _old(line)}
    size = sum(tensor.untyped_storage().nbytes() for tensor in old.values())
    if len(old) > 1 and size >= line.bytes:
        line.count, line.bytes = len(old), size
    line.graph |= len(old) > 1 and any(_has_graph(tensor, line) for tensor in old.values())


def returned(result, frame, torch):
    """A module that no other module called has returned."""
    line = _lines.setdefault(_key(frame), _Line())
    line.calls += 1
    line.kept += [(line.calls, weakref.ref(tensor)) for tensor in _tensors(result, torch)]
    if line.calls >= line.next:
        line.next += 1 + line.next // 4
        _look(line)


def backward(own, *args, **kwargs):
    """A backward pass, which may be why results are kept."""
    waiting = [(line, [tensor for tensor in _old(line)[:_NODES] if _has_graph(tensor, line)])
               for line in _lines.values() if line.kept]
    result = own(*args, **kwargs)
    for line, tensors in waiting:
        line.needed |= any(not _has_graph(tensor, line) for tensor in tensors)
    return result


def found(say):
    for line in _lines.values():
        _look(line)
    worth = [(key, line) for key, line in _lines.items() if line.count and (line.bytes >= _BIG or line.graph)]
    worth.sort(key=lambda item: (-item[1].bytes, item[0]))
    for key, line in worth[:_LINES]:
        text = f"kept outputs of {key} (at least {line.count}, {line.bytes / 2**20:.0f} MiB"
        text += ", and what a backward pass would need)" if line.graph else ")"
        if line.needed:
            say("cannot", "outputs", "", f"{text}: a backward pass needs them")
        elif line.hidden:
            say("cannot", "outputs", "", f"{text}: CMD has hooks for saved tensors, so whether a backward pass needs "
                "them is not known")
        elif not any(sign in key for sign in ";\t\n"):
            say("can", "outputs", f"outputs={key}", f"{text}, detached and moved to the host")


def move(result, frame, torch, wanted, did, cannot):
    """The same in the run of the change: what the line has returned before goes to the host."""
    if _key(frame) != wanted:
        return
    line = _lines.setdefault(wanted, _Line())
    line.calls += 1
    for number, ref in line.kept:
        tensor = ref()
        if tensor is None or not tensor.is_cuda:
            continue
        try:
            tensor.detach_()
            tensor.data = tensor.data.cpu()
            did()
        except RuntimeError as error:  # a view of another tensor cannot be detached
            cannot(str(error).partition("\n")[0])
    line.kept = [(line.calls, weakref.ref(tensor)) for tensor in _tensors(result, torch)]
