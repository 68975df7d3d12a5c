#!/bin/sh
# SPDX-License-Identifier: MIT
# opentelemetry-proto 1.42.1 and 1.45.2 (Python's package index): the message Sample of OTLP profiles has other field numbers from
# 1.43 on, under the same package name, opentelemetry.proto.profiles.v1development.  Both versions read what the other one wrote
# without an error: the numbers of a sample become its attributes, and the number of its link becomes its value.
#
# A user of memory profiles meets it when a writer and a collector are of different versions: a call site that holds 100 MiB is
# shown with 9 bytes.  So gpuprof writes pprof and not OTLP profiles, and a reader should compare the version first.
. "$(dirname "$0")/lib.sh"
packages old opentelemetry-proto==1.42.1
packages new opentelemetry-proto==1.45.2
cat >"$work/write.py" <<'END'
import sys
from opentelemetry.proto.profiles.v1development import profiles_pb2
sample = profiles_pb2.Sample(stack_index=3, values=[104857600], attribute_indices=[7], link_index=9)
sys.stdout.buffer.write(sample.SerializeToString())
END
cat >"$work/read.py" <<'END'
import sys
from opentelemetry.proto.profiles.v1development import profiles_pb2
sample = profiles_pb2.Sample.FromString(sys.stdin.buffer.read())
print(f"stack {sample.stack_index}, values {list(sample.values)}, attributes {list(sample.attribute_indices)}, link {sample.link_index}")
END
for writer in old new; do
    for reader in old new; do
        printf 'written by the %s, read by the %s: ' $writer $reader
        "$work/$writer/bin/python3" "$work/write.py" | "$work/$reader/bin/python3" "$work/read.py" 2>&1
    done
done | same 'written by the old, read by the old: stack 3, values [104857600], attributes [7], link 9
written by the old, read by the new: stack 3, values [9], attributes [104857600], link 0
written by the new, read by the old: stack 3, values [7], attributes [9], link 0
written by the new, read by the new: stack 3, values [104857600], attributes [7], link 9'
