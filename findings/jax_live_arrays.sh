#!/bin/sh
# SPDX-License-Identifier: MIT
# JAX 0.10.2: the sum of nbytes over jax.live_arrays() is not the memory that arrays hold.  An array that is replicated over eight
# devices says the bytes of one copy.  Reading .data of its addressable_shards makes eight more arrays over the same buffers,
# which live as long as the array: the sum then says nine copies.  So a program that prints its shards changes the number.
# jax.profiler.device_memory_profile() says eight before and after.
#
# gpuprof counts the buffers of the allocator.
. "$(dirname "$0")/lib.sh"
packages all jax==0.10.2 jaxlib==0.10.2 protobuf==6.33.0 numpy
cat >"$work/arrays.py" <<'END'
import gzip
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def number(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        tag, at = number(data, at)
        if tag & 7 == 0:
            value, at = number(data, at)
        else:  # a pprof profile has numbers and bytes alone
            length, at = number(data, at)
            value, at = data[at:at + length], at + length
        yield tag >> 3, value


def held():
    """The second value (bytes) of all samples of the profile."""
    total = 0
    for field, value in fields(gzip.decompress(jax.profiler.device_memory_profile())):
        if field == 2:
            values = []
            for inner, packed in fields(value):
                if inner == 2 and isinstance(packed, bytes):
                    at = 0
                    while at < len(packed):
                        one, at = number(packed, at)
                        values.append(one)
                elif inner == 2:
                    values.append(packed)
            total += values[1]
    return total


def say(when):
    print(f"{when}: live_arrays {sum(a.nbytes for a in jax.live_arrays()) >> 20} MiB, held {held() >> 20} MiB")


mesh = Mesh(np.array(jax.devices()), ("d",))
array = jax.device_put(np.ones((8, 1 << 17), np.float32), NamedSharding(mesh, PartitionSpec()))
say("replicated over 8")
sum(shard.data.nbytes for shard in array.addressable_shards)
say("its shards were read")
END
JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=8 "$work/all/bin/python3" "$work/arrays.py" 2>&1 |
    same 'replicated over 8: live_arrays 4 MiB, held 32 MiB
its shards were read: live_arrays 36 MiB, held 32 MiB'
