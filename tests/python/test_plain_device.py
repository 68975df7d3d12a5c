# SPDX-License-Identifier: MIT
"""Which values are accepted as a device, and which errors others raise, here and in each system's namespace."""
import unittest

import gpuprof
from gpuprof import _device
from gpuprof.compat import paddle, tensorflow, torch


class Thing:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def __str__(self):
        return "thing"


class Index:
    def __index__(self):
        return 4


class Place:
    def get_device_id(self):
        return 3


class Accepted(unittest.TestCase):
    def test_numbers(self):
        self.assertEqual([_device.number(d) for d in (0, 7, Index())], [0, 7, 4])

    def test_names(self):
        for name, number in (
            ("cuda:1", 1),
            ("gpu:2", 2),
            ("GPU:3", 3),
            ("/device:GPU:4", 4),
            ("/physical_device:GPU:5", 5),
            ("/job:localhost/replica:0/task:0/device:GPU:6", 6),
            ("cuda", 0),
            ("gpu", 0),
        ):
            self.assertEqual(_device.number(name), number, name)

    def test_objects(self):
        for device, number in (
            (Thing(type="cuda", index=2), 2),
            (Thing(type="cuda", index=None), 0),  # torch.device("cuda")
            (Thing(idx=1, prev_idx=-1), 1),  # torch.cuda.device(1)
            (Thing(id=3), 3),  # cupy.cuda.Device(3)
            (Thing(platform="gpu", id=2), 2),  # jax.Device
            (Place(), 3),  # paddle.CUDAPlace(3)
            (Thing(name="/physical_device:GPU:1", device_type="GPU"), 1),  # TensorFlow
        ):
            self.assertEqual(_device.number(device), number, device.__dict__)


class Refused(unittest.TestCase):
    def test_what_is_no_gpu(self):
        for device in (
            "cpu",
            "cpu:0",
            "cuda:",
            "cuda:-1",
            "cuda:x",
            "cuda:0 ",
            "cuda:\u0661",
            "xpu:0",
            "",
            "GPU0",
            -1,
            Thing(type="cpu", index=None),
            Thing(platform="tpu", id=0),
            Thing(name="/physical_device:CPU:0", device_type="CPU"),
        ):
            with self.assertRaises(gpuprof.DeviceError, msg=repr(device)):
                gpuprof.memory_allocated(device)

    def test_the_error_is_what_each_original_raises(self):
        for kind in (RuntimeError, ValueError):
            with self.assertRaises(kind):
                gpuprof.reset_peak_memory_stats("cpu")

    def test_what_cannot_be_a_device(self):
        for device in (1.5, True, [0], object(), b"cuda:0", {}):
            with self.assertRaises(TypeError, msg=repr(device)):
                gpuprof.memory_stats(device)

    def test_every_function_checks(self):
        for name in gpuprof.__all__:
            if "memory" in name and "host" not in name or name == "mem_get_info":
                with self.assertRaises(gpuprof.DeviceError, msg=name):
                    getattr(gpuprof, name)("cpu:0")


class Originals(unittest.TestCase):
    def raises(self, kind, call, device):
        with self.assertRaises(kind, msg=repr(device)) as caught:
            call(device)
        self.assertNotIsInstance(caught.exception, gpuprof.DeviceError)

    def test_torch(self):
        self.assertEqual(torch.memory_allocated("cuda:3"), 0)
        self.assertEqual(torch.memory_allocated(Thing(type="cuda", index=None)), 0)
        for device in ("gpu:0", "GPU:0", "CUDA:0", "cuda:", "cuda:-1", "cuda:01", "nonsense", "", -1):
            self.raises(RuntimeError, torch.memory_stats, device)
        for device in ("cpu", "cpu:0", "mps", "meta", Thing(type="cpu", index=0)):
            self.raises(ValueError, torch.reset_peak_memory_stats, device)

    def test_paddle(self):
        for device in (None, 3, "gpu:3", Place()):
            self.assertEqual(paddle.max_memory_allocated(device), 0)
        for device in ("gpu", "GPU:0", "cuda:0", "cpu", "gpu:x", "gpu:", "gpu1", 1.5, [0]):
            self.raises(ValueError, paddle.reset_max_memory_allocated, device)
        for device in (-1, "gpu:-1"):
            self.raises(AssertionError, paddle.reset_max_memory_reserved, device)

    def test_tensorflow(self):
        self.assertEqual(tensorflow.get_memory_info("GPU:3"), {"current": 0, "peak": 0})
        for device in ("GPU", "CPU:0", "cpu", "cuda:0", "nonexistent", "", "CPU:GPU", "CPU:", 0, None):
            self.raises(ValueError, tensorflow.get_memory_info, device)
            self.raises(ValueError, tensorflow.reset_memory_stats, device)


if __name__ == "__main__":
    unittest.main()
