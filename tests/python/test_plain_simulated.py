# SPDX-License-Identifier: MIT
"""What Python programs on the simulated GPU get (sim/python), with stand-ins for PyTorch and transformers."""
import os
import subprocess
import sys
import tempfile
import unittest

FOLDER = os.path.join(os.environ["GPUPROF_TEST_BUILD"], "lib/gpuprof/sim/python")
MODULES = {
    "torch/__init__.py": "import os\nat_import = os.environ.get('GPUPROF_SIM')\n",
    "torch/version.py": "cuda = '13.2'\n",
    "transformers/__init__.py": "",
    "transformers/generation/__init__.py": "",
    "transformers/generation/stopping_criteria.py": """
class MaxLengthCriteria:
    def __init__(self, max_length):
        self.max_length = max_length

    def __call__(self, input_ids, scores):
        return input_ids.shape[1] >= self.max_length
""",
    # The loop of generate(); finished: what the device says after each word.
    "transformers/generation/utils.py": """
from transformers.generation.stopping_criteria import MaxLengthCriteria


class Device:
    def __init__(self, type):
        self.type = type


class Ids:
    def __init__(self, length):
        self.shape = (2, length)


class GenerationMixin:
    def _has_unfinished_sequences(self, this_peer_finished, synced_gpus, device):
        return not this_peer_finished

    def generate(self, device, finished, most):
        criteria = [MaxLengthCriteria(most)] if most else []
        this_peer_finished, ids, words = False, Ids(3), iter(finished)
        while self._has_unfinished_sequences(this_peer_finished, False, device=Device(device)):
            ids = Ids(ids.shape[1] + 1)
            reached = any([one(ids, None) for one in criteria])
            this_peer_finished = reached if device == "cpu" else next(words)
        return ids.shape[1]
""",
}


class Simulated(unittest.TestCase):
    def run_with(self, code, sim):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in MODULES.items():
                path = os.path.join(folder, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            env = {**os.environ, "PYTHONPATH": f"{FOLDER}:{folder}"}
            env.pop("GPUPROF_SIM", None)
            if sim is not None:
                env["GPUPROF_SIM"] = sim
            done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
            self.assertEqual(done.stderr, "")
            return done.stdout.strip()

    def test_pytorch_reads_zeros(self):
        for sim, wanted in ((None, "contents=none"), ("", "contents=none"), ("memory=1GiB", "memory=1GiB,contents=none"),
                            ("contents=keep,devices=2", "contents=keep,devices=2"), ("contents=none", "contents=none")):
            self.assertEqual(self.run_with("import torch; print(torch.at_import)", sim), wanted)

    def test_other_programs_keep(self):
        self.assertEqual(self.run_with("import os, json; print(os.environ['GPUPROF_SIM'])", "memory=1GiB"), "memory=1GiB")

    def test_cudnn_frontend_takes_the_runtime_of_pytorch(self):
        name = "CUDNN_FRONTEND_CUDART_LIB_NAME"
        code = f"import os, torch.version; print(os.environ.get('{name}'))"
        self.assertEqual(self.run_with(code, ""), "libcudart.so.13")
        self.assertEqual(self.run_with(f"import os; os.environ['{name}'] = 'own'; " + code, ""), "own")
        self.assertEqual(self.run_with(f"import os; print(os.environ.get('{name}'))", ""), "None")

    def test_generate_ends_at_its_greatest_length(self):
        """Whatever memory holds where the GPU would have written whether a text has ended."""
        code = ("from transformers.generation.utils import GenerationMixin as G; g = G(); true = [True] * 99; false = [False] * 99;"
                "print([g.generate('cuda', words, 12) for words in (false, true, [False, True] * 50)],"
                " g.generate('cpu', [], 7), g.generate('cuda', [False, False, True], None), g.generate('cuda', true, 5))")
        self.assertEqual(self.run_with(code, "contents=keep"), "[12, 12, 12] 7 6 5")


if __name__ == "__main__":
    unittest.main()
