#!/bin/sh
# SPDX-License-Identifier: MIT
# Nothing of a dry run, or of devices that several processes share, stays in /dev/shm: also where a signal ends the
# program, as --steps does.
#   test_dryrun_left.sh BUILD
# Run: script
set -u
build=${1:?usage: test_dryrun_left.sh BUILD}
gpuprof=$build/bin/gpuprof train=$build/examples/train_rt
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

check() { # WHAT STATUS
    if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED  $1"; fi
}

left() { # WHAT NAME: no file of the group NAME
    found=$(find /dev/shm -maxdepth 1 -name "gpuprof-sim-*-$2*")
    [ -z "$found" ]
    check "$1: $found" $?
}

dryrun() { # WHAT ARGUMENT..
    what=$1
    shift
    # shellcheck disable=SC2016 # the inner shell's number is the dry run's
    pid=$(sh -c 'echo $$; exec "$0" dryrun --gpu=t4 "$@" >"$0.none" 2>&1' "$work/gpuprof" "$@")
    left "$what" "dryrun-$pid-"
}

# A name for the dry run by which the shell above finds it, and its output beside it.
printf '#!/bin/sh\nexec "%s" "$@"\n' "$gpuprof" >"$work/gpuprof"
chmod +x "$work/gpuprof"

dryrun "a signal" -- sh -c '"$0" --steps 1000 --pace 100 & sleep 1; kill -9 $!; wait $!; true' "$train"
dryrun "the program's end" -- "$train" --steps 2 --pace 0
"$gpuprof" run --sim="shared=left-$$" -- sh -c '"$0" --steps 1000 --pace 100 & sleep 1; kill -9 $!; wait $!; true' "$train" >"$work/out" 2>&1
left "run --sim=shared" "left-$$"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
