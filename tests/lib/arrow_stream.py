# SPDX-License-Identifier: MIT
"""Reads a table in Arrow's stream format by its wire rules and those of flatbuffers, for machines without pyarrow.  Uses no code of the
product.  For export_check.py and tests/integration/test_arrow.sh."""


def must(condition, *what):
    if not condition:
        raise ValueError(" ".join(map(str, what)))


def uint(data, at, size):
    must(0 <= at and at + size <= len(data), "a number is cut")
    return int.from_bytes(data[at:at + size], "little")


def field(data, table, number):
    """Where a field of a flatbuffer's table lies; 0: it has its default."""
    vtable = table - int.from_bytes(data[table:table + 4], "little", signed=True)
    if uint(data, vtable, 2) <= 4 + 2 * number:
        return 0
    offset = uint(data, vtable + 4 + 2 * number, 2)
    return table + offset if offset else 0


def follow(data, at):
    return at + uint(data, at, 4)


def items(data, table, number):
    """Where the first item of a vector lies, and how many there are."""
    at = field(data, table, number)
    if not at:
        return 0, 0
    vector = follow(data, at)
    return vector + 4, uint(data, vector, 4)


def columns_of(data, schema):
    """(name, type) of each column: Schema.fields, Field.name, Field.type."""
    first, count = items(data, schema, 1)
    for i in range(count):
        column = follow(data, first + 4 * i)
        name = follow(data, field(data, column, 0))
        kind, of = uint(data, field(data, column, 2), 1), follow(data, field(data, column, 3))
        if kind == 2:  # Int: bitWidth, is_signed
            must(uint(data, field(data, of, 1), 1) == 1, "an unsigned column")
            kind = "int%d" % uint(data, field(data, of, 0), 4)
        elif kind == 10:  # Timestamp: unit, timezone
            zone = follow(data, field(data, of, 1))
            must(uint(data, field(data, of, 0), 2) == 3, "not nanoseconds")
            must(data[zone + 4:zone + 4 + uint(data, zone, 4)] == b"UTC", "not UTC")
            kind = "time"
        else:
            kind = {5: "text", 6: "flag"}[kind]
        yield data[name + 4:name + 4 + uint(data, name, 4)].decode(), kind


def values_of(kind, length, valid, parts):
    valid = [not valid or valid[i >> 3] >> (i & 7) & 1 for i in range(length)]
    if kind == "text":
        ends, body = (memoryview(parts[0]).cast("i") if parts[0] else [0]), parts[1]
        values = [body[ends[i]:ends[i + 1]].decode("utf-8") for i in range(length)]
    elif kind == "flag":
        values = [bool(parts[0][i >> 3] >> (i & 7) & 1) for i in range(length)]
    else:
        values = list(memoryview(parts[0]).cast("i" if kind == "int32" else "q"))[:length]
    return [value if known else None for value, known in zip(values, valid)]


def read(path):
    """The columns of a table, and its rows as dictionaries.  ValueError: it is no stream of such columns."""
    with open(path, "rb") as file:
        data, at, columns, rows = file.read(), 0, None, []
    while True:
        must(uint(data, at, 4) == 0xFFFFFFFF, "no message begins here")
        size, at = uint(data, at + 4, 4), at + 8
        if not size:
            must(at == len(data), "there is more behind the end")
            return columns, rows
        must(at % 8 == 0 and size % 8 == 0, "a message is not aligned")
        head, at = data[at:at + size], at + size
        message_at = follow(head, 0)
        kind, header = uint(head, field(head, message_at, 1), 1), follow(head, field(head, message_at, 2))
        if kind == 1:
            columns = dict(columns_of(head, header))
            continue
        must(kind == 3, "a message of another kind:", kind)
        size = uint(head, field(head, message_at, 3), 8)
        body, at = data[at:at + size], at + size
        nodes, node_count = items(head, header, 1)
        buffers, _ = items(head, header, 2)
        must(node_count == len(columns), "columns", node_count)
        batch = {}
        for i, (column, what) in enumerate(columns.items()):
            length, parts = uint(head, nodes + 16 * i, 8), []
            for _ in range(3 if what == "text" else 2):
                start, count = uint(head, buffers, 8), uint(head, buffers + 8, 8)
                must(start + count <= len(body), "a buffer is cut")
                parts.append(body[start:start + count])
                buffers += 16
            batch[column] = values_of(what, length, parts[0], parts[1:])
            must(uint(head, nodes + 16 * i + 8, 8) == batch[column].count(None), "nulls of", column)
        rows += [dict(zip(batch, values)) for values in zip(*batch.values())]
