#!/bin/sh
# SPDX-License-Identifier: MIT
# pyarrow 26.0.1 and polars 2.1.0: a stream of Arrow whose dictionary grows by delta messages, which the format allows and
# pyarrow, pandas and DuckDB read, is refused by polars.  With whole dictionaries in their place it reads the same values.
#
# A recording finds call sites as it goes, so a writer of events would send each new name once, as a delta.  A file for all
# engines has to send the dictionary again.
. "$(dirname "$0")/lib.sh"
packages all pyarrow==26.0.1 polars==2.1.0
cat >"$work/deltas.py" <<'END'
import io
import polars
import pyarrow
from pyarrow import ipc

schema = pyarrow.schema([("site", pyarrow.dictionary(pyarrow.int32(), pyarrow.string())), ("bytes", pyarrow.int64())])


def batch(names, indices, sizes):
    sites = pyarrow.DictionaryArray.from_arrays(pyarrow.array(indices, pyarrow.int32()), pyarrow.array(names))
    return pyarrow.record_batch([sites, pyarrow.array(sizes, pyarrow.int64())], schema=schema)


batches = [batch(["a.py:1"], [0], [1]), batch(["a.py:1", "b.py:2"], [0, 1], [2, 4])]
for deltas in False, True:
    file = io.BytesIO()
    with ipc.new_stream(file, schema, options=ipc.IpcWriteOptions(emit_dictionary_deltas=deltas)) as writer:
        for one in batches:
            writer.write_batch(one)
    print("deltas" if deltas else "whole dictionaries")
    print("  pyarrow", ipc.open_stream(file.getvalue()).read_all().to_pydict())
    try:
        print("  polars", polars.read_ipc_stream(io.BytesIO(file.getvalue())).to_dict(as_series=False))
    except Exception as error:
        print("  polars", type(error).__name__, error)
END
"$work/all/bin/python3" "$work/deltas.py" 2>&1 | same "whole dictionaries
  pyarrow {'site': ['a.py:1', 'a.py:1', 'b.py:2'], 'bytes': [1, 2, 4]}
  polars {'site': ['a.py:1', 'a.py:1', 'b.py:2'], 'bytes': [1, 2, 4]}
deltas
  pyarrow {'site': ['a.py:1', 'a.py:1', 'b.py:2'], 'bytes': [1, 2, 4]}
  polars ComputeError delta dictionary batches not supported"
