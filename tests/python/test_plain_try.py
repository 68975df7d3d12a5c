# SPDX-License-Identifier: MIT
"""What the hook of `gpuprof dryrun --try` (sim/python) takes for kept outputs, and how it changes the arguments of
optimizers, with a stand-in for PyTorch's tensors."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["GPUPROF_TEST_BUILD"], "lib/gpuprof/sim/python"))
import gpuprof_outputs
import gpuprof_shard

MIB = 1 << 20


class Graph:
    """Of one operation, which has saved a tensor until a backward pass frees it."""

    next_functions = ()

    def __init__(self):
        self.freed = False

    @property
    def _saved_self(self):
        if self.freed:
            raise RuntimeError("freed")
        return Tensor(0)


class Tensor:
    is_cuda = True

    def __init__(self, size, graph=None):
        self.size, self.grad_fn = size, graph

    def untyped_storage(self):
        return self

    def data_ptr(self):
        return id(self)

    def nbytes(self):
        return self.size


class Torch:
    Tensor = Tensor

    class nn:
        class Parameter(Tensor):
            pass


class Outputs(unittest.TestCase):
    def setUp(self):
        gpuprof_outputs._lines.clear()

    def found(self):
        rows = []
        gpuprof_outputs.found(lambda *fields: rows.append(fields))
        return rows

    def call(self, keep, size=8 * MIB, graph=None):
        result = {"logits": Tensor(size, graph)}
        gpuprof_outputs.returned(result, sys._getframe(), Torch)
        if keep is not None:
            keep.append(result)

    def test_what_is_kept_is_named_with_its_line(self):
        kept = []
        for _ in range(9):
            self.call(kept)
        (row,) = self.found()
        self.assertEqual(row[:2], ("can", "outputs"))
        self.assertRegex(row[2], r"^outputs=test_plain_try\.py:\d+$")
        self.assertRegex(row[3], r"^kept outputs of test_plain_try\.py:\d+ \(at least 7, 56 MiB\), detached")

    def test_what_the_next_call_replaces_is_not_kept(self):
        kept = []
        for _ in range(9):
            self.call(kept)
            del kept[:-1]
        self.assertEqual(self.found(), [])

    def test_small_ones_count_with_a_graph(self):
        kept = []
        for _ in range(9):
            self.call(kept, 4)
        self.assertEqual(self.found(), [])
        for _ in range(9):
            self.call(kept, 4, Graph())
        self.assertIn("and what a backward pass would need", self.found()[0][3])

    def test_those_of_a_backward_pass_are_not_tried(self):
        kept, graphs = [], [Graph() for _ in range(9)]

        def own():
            for graph in graphs:
                graph.freed = True

        for graph in graphs:
            self.call(kept, 8 * MIB, graph)
        gpuprof_outputs.backward(own)
        (row,) = self.found()
        self.assertEqual(row[:3], ("cannot", "outputs", ""))
        self.assertIn("a backward pass needs them", row[3])


    def test_a_graph_that_cannot_be_looked_at(self):
        class Hooks:
            class saved_tensors_hooks:
                pass

        gpuprof_outputs.graph(Hooks)
        Hooks.saved_tensors_hooks()
        self.addCleanup(setattr, gpuprof_outputs._Hooks, "used", False)
        kept = []
        for _ in range(9):
            self.call(kept, 8 * MIB, Graph())
        (row,) = self.found()
        self.assertEqual(row[:2], ("cannot", "outputs"))
        self.assertIn("is not known", row[3])


class Parameters(unittest.TestCase):
    def test_each_form_of_an_argument(self):
        old, new, other = Tensor(1), Tensor(2), Tensor(3)
        swap = {id(old): new}
        for given, wanted in (
            ((part for part in [old, other]), [new, other]),
            ([{"params": (part for part in [old]), "lr": 1}], [{"params": [new], "lr": 1}]),
            ([("first", old), ("second", other)], [("first", new), ("second", other)]),
            ([{"params": other}], [{"params": other}]),
        ):
            self.assertEqual(gpuprof_shard._swapped(gpuprof_shard.listed(given), swap), wanted)


if __name__ == "__main__":
    unittest.main()
