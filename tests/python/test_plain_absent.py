# SPDX-License-Identifier: MIT
"""The store of a job of which some ranks run, over one of PyTorch's that a dict stands in for."""
import os
import struct
import sys
import tempfile
import types
import unittest

os.environ.update(RANK="1", WORLD_SIZE="4", GPUPROF_SIM_RANKS="1-2", GPUPROF_SIM_STORE="1")
sys.path.insert(0, os.path.join(os.environ["GPUPROF_TEST_BUILD"], "lib/gpuprof/sim/python"))
import gpuprof_absent  # noqa: E402

gpuprof_absent._SECONDS_LAST = 0  # nobody comes that it would have to serve


class Base:
    def __init__(self, *_args, **_kwargs):
        self.values = {}

    def set(self, key, value):
        self.values[key] = value

    def get(self, key):
        return self.values[key]

    def add(self, key, number):
        self.values[key] = self.values.get(key, 0) + number
        return self.values[key]

    def check(self, keys):
        return all(key in self.values for key in keys)


class DistStoreError(RuntimeError):
    pass


def store():
    """Of rank 1 of 4, where rank 2 runs too; all four are the group 'tp'."""
    gpuprof_absent._base = None
    gpuprof_absent._groups.update({"tp": [0, 1, 2, 3], "5": [1, 2], "6": [1, 2]})
    c = types.SimpleNamespace(Store=Base, TCPStore=Base, HashStore=Base)
    made = gpuprof_absent._store_class(c, DistStoreError)("tcp")
    made.set_timeout(types.SimpleNamespace(total_seconds=lambda: 2))
    return made


class Symmetric(unittest.TestCase):
    def test_an_absent_rank_says_what_the_next_one_says(self):
        one = store()
        for rank in 1, 2:
            one.set(f"tp//CUDASymmetricMemory/5/{rank}", struct.pack("ii", rank, 100 + rank))
        values = one.multi_get([f"tp//CUDASymmetricMemory/5/{rank}" for rank in range(4)])
        self.assertEqual([struct.unpack("ii", value)[1] for value in values], [101, 101, 102, 101])

    def test_absent_ranks_come_to_a_barrier(self):
        one = store()
        self.assertEqual(one.add("tp//CUDASymmetricMemory/6/num_members", 1), 3)
        self.assertEqual(one.add("tp//CUDASymmetricMemory/6/num_members", 1), 4)
        self.assertEqual(one.add("tp/others", 1), 1)

    def test_a_rank_that_runs_is_waited_for(self):
        one = store()
        one.set("tp//CUDASymmetricMemory/5/1", b"1")
        one.set_timeout(types.SimpleNamespace(total_seconds=lambda: 0.05))
        with self.assertRaises(DistStoreError):
            one.get("tp//CUDASymmetricMemory/5/2")
        self.assertEqual(gpuprof_absent._waits, [])

    def test_ranks_meet_in_the_store_of_the_group_where_pytorch_makes_a_file(self):
        told, c10d = [], types.SimpleNamespace(
            _resolve_process_group=lambda name: types.SimpleNamespace(rank=lambda: 1, size=lambda: 4, name=name),
            _get_process_group_store=lambda group: "store of " + group.name,
            PrefixStore=lambda prefix, store: (prefix, store),
        )

        def by_file(_group_name):
            FileStore("/tmp/made-by-rank-0")  # noqa: F821 # as PyTorch 2.7

        def by_store(_group_name):
            pass

        symmetric = types.SimpleNamespace(set_group_info=lambda *group: told.append(group))
        for enable in by_file, by_store:
            module = types.SimpleNamespace(
                enable_symm_mem_for_group=enable, c10d=c10d, _group_name_to_store={}, _SymmetricMemory=symmetric
            )
            gpuprof_absent.symmetric(module)
            module.enable_symm_mem_for_group("tp")
            module.enable_symm_mem_for_group("tp")
        self.assertEqual(told, [("tp", 1, 4, ("symmetric_memory", "store of tp"))])


class Gloo(unittest.TestCase):
    def test_its_groups_can_be_named_where_the_fake_one_has_no_options(self):
        class FakeProcessGroup:  # of 2.8
            def __init__(self, rank, size):
                self.rank, self.size = rank, size

        c10d, c = types.SimpleNamespace(), types.SimpleNamespace(FakeProcessGroup=FakeProcessGroup)
        gpuprof_absent._gloo(c10d, c)
        group = c10d.ProcessGroupGloo(None, 1, 4)
        group.options.group_name = "tp"
        self.assertEqual((group.rank, group.size, group.options.group_name), (1, 4, "tp"))


class Standing(unittest.TestCase):
    def test_the_rank_that_would_set_a_key_is_named_if_it_runs(self):
        gpuprof_absent._SECONDS_ALONE = 0.1
        one, limit = store(), types.SimpleNamespace(total_seconds=lambda: 10)
        one._store.add("gpuprof/waiting", 1)  # the other rank that runs
        with self.assertRaisesRegex(RuntimeError, "rank 1 of 4 waits for the key 'tp/2:3', which rank 2 would set"):
            one.wait(["tp/2:3"], limit)
        with self.assertRaisesRegex(RuntimeError, "rank 1 of 4 waits for the key 'tp/never', which only an absent rank would"):
            one.wait(["tp/never"], limit)

    def test_a_rank_that_stands_says_for_which_key(self):
        one, limit = store(), types.SimpleNamespace(total_seconds=lambda: 3)
        with tempfile.NamedTemporaryFile("r") as file:
            os.environ["GPUPROF_SIM_WAITS"] = file.name
            gpuprof_absent._SECONDS_IDLE = 1
            thread = gpuprof_absent.threading
            thread.Thread(target=gpuprof_absent._watch, args=(thread.main_thread().ident,), daemon=True).start()
            with self.assertRaises(DistStoreError):
                one.wait(["tp/never"], limit)
            rank, what, *frames = file.readline().split("\t")
        self.assertEqual((rank, what), ("1", "the key 'tp/never', which no rank has set"))
        self.assertTrue(any("test_plain_absent.py" in frame for frame in frames), frames)


if __name__ == "__main__":
    unittest.main()
