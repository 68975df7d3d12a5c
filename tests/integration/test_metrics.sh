#!/bin/sh
# SPDX-License-Identifier: MIT
# Tests the metrics under a real Prometheus, its rules and the dashboard: test_metrics.sh BUILD_DIR
# Run: slow
cd "$(dirname "$0")/../.."
build=${1:-build}
# needs.sh unpacks Prometheus there, so that no service is installed.
PATH=$PATH:$PWD/build/aside/usr/bin
export PATH
for tool in python3 prometheus promtool; do
    command -v $tool > /dev/null || { echo "no $tool here: deploy/needs.sh all unpacks it"; exit 77; }
done
# The agent mounts a missing BPF file system: in a mount namespace of the test's own it leaves none on the machine.
alone=
unshare --mount true 2> /dev/null && alone="unshare --mount"
exec $alone python3 tests/metrics/scrape.py "$build"
