# SPDX-License-Identifier: MIT
"""Files that this package writes: an older one stays until the new one is complete."""

from __future__ import annotations

import os
from typing import Any


def write(path: Any, data: bytes) -> None:
    """Writes a file beside `path` and renames it.  Pipes and devices are written directly."""
    name = os.path.realpath(path)
    if os.path.exists(name) and not os.path.isfile(name):
        with open(name, "wb") as file:
            file.write(data)
        return
    part = f"{os.fsdecode(name)}.{os.getpid()}.part"
    try:
        with open(part, "xb") as file:
            file.write(data)
        os.replace(part, name)
    except BaseException:
        if os.path.exists(part):
            os.unlink(part)
        raise
