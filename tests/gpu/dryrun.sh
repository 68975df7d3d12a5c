#!/bin/sh
# SPDX-License-Identifier: MIT
# Makes the bundle, and goes through what a GPU machine would run out of it: dryrun.sh BUILD_DIR
# Run: slow
cd "$(dirname "$0")/../.."
tests/gpu/bundle.sh "$1" || exit
exec "$1"/gpu-bundle/tests/gpu/run.sh --dry-run
