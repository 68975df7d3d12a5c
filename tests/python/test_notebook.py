# SPDX-License-Identifier: MIT
"""The magic of notebooks, and the peak of a scope over all devices."""
import contextlib
import importlib.util
import io
import unittest
import unittest.mock

import gpu
import gpuprof

MIB = 1 << 20


class Scope(unittest.TestCase):
    def test_peak_is_of_the_device_with_the_most(self):
        gpu.use(1)
        with gpuprof.scope("two") as two:
            gpu.free(gpu.alloc(3 * MIB))
            self.assertEqual(two.peak, 3 * MIB)
        self.assertEqual((two.peak, two.peak_allocated(1), two.peak_allocated(0)), (3 * MIB, 3 * MIB, 0))

        @gpuprof.scope("decorated")
        def work():
            return 5

        self.assertEqual(work(), 5)


@unittest.skipUnless(importlib.util.find_spec("IPython"), "IPython is not installed")
class Magic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        from IPython.core.interactiveshell import InteractiveShell

        cls.shell = InteractiveShell.instance()
        cls.shell.run_cell("%load_ext gpuprof")
        gpu.use(0)
        cls.shell.user_ns["gpu"] = gpu

    def run_cell(self, line, cell):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.shell.run_cell_magic("gpuprof", line, cell)
        return out.getvalue()

    def test_cell(self):
        text = self.run_cell("", "kept = gpu.alloc(3 << 20)\ngpu.free(gpu.alloc(5 << 20))")
        self.assertIn("GPU memory: added 8.0 MiB, peak 8.0 MiB, left behind 3.0 MiB", text)
        self.assertIn("left behind -3.0 MiB", self.run_cell("", "gpu.free(kept)"))
        self.assertIn("added 0 B", self.run_cell("", "1 / 0"))
        self.assertIn("usage", self.run_cell("--nothing", "1"))

    def test_page(self):
        shown = []
        with unittest.mock.patch("IPython.display.display", shown.append):
            text = self.run_cell("--page", "gpu.free(gpu.alloc(5 << 20))")
        self.assertEqual(len(shown), 1, text)
        self.assertIn("<iframe srcdoc=", shown[0].data)
        self.assertIn("cell.gpuprof", shown[0].data)


if __name__ == "__main__":
    unittest.main()
