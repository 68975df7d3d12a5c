#!/bin/sh
# SPDX-License-Identifier: MIT
# The JSON of every command against docs/schema: test_schemas.sh BUILD_DIR
# Run: script
cd "$(dirname "$0")/../.."
command -v python3 >/dev/null || { echo "python3 is not installed: no document was checked"; exit 77; }
exec python3 tests/integration/schemas.py "$1"
