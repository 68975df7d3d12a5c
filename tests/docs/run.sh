#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs the commands of the documentation (commands.py) where they see no other process: run.sh BUILD_DIR
# Run: slow
cd "$(dirname "$0")/../.."
own=
[ "$(id -u)" = 0 ] || own=--map-root-user
unshare $own --pid --fork --mount-proc true 2>/dev/null || { echo "needs root or user namespaces"; exit 77; }
exec unshare $own --pid --fork --kill-child --mount-proc python3 tests/docs/commands.py "${@:-build}"
