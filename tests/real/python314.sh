#!/bin/bash
# SPDX-License-Identifier: MIT
# Attaches to a real Python 3.14, which can be asked to load the library (PEP 768), and leaves it: busy, in a namespace and as
# another user by asking; where that is not possible, by ptrace with the reason.  Each time what is allocated afterwards is counted,
# the program's calls all succeed, and nothing stays in /tmp.
#
#   tests/real/python314.sh BUILD
#
# The packages come from the mirror once; without it, or without the right to mount, exits with 77 and a reason.
# Run: slow
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "${1:?usage: tests/real/python314.sh BUILD}")
[ "$(uname -m)" = x86_64 ] || { echo "real/python314.sh: only for x86-64"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "real/python314.sh: needs root"; exit 77; }
real=$(realpath -m "${GPUPROF_REAL:-build/real}")
root=$real/python314-root
mkdir -p "$real"
said=$(tests/real/fetch -d "$root" sid base-files coreutils python3.14 libpython3.14 2>&1) || { echo "$said" | tail -n 1; exit 77; }
tests/real/inside "$root" python3.14 -c '' 2>/dev/null || { echo "real/python314.sh: this Python does not run here"; exit 77; }
work=$(mktemp -d "$build/python314.XXXXXX") # seen on both sides, as /tmp is not
chmod 777 "$work"
finish() {
    touch "$work/stop"
    wait
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM
passed=0 failed=0
pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); echo "FAILED  $*"; sed 's/^/        /' "$work/out" "$work/said" 2>/dev/null; }
until_there() { # FILE
    for _ in $(seq 300); do
        [ ! -e "$1" ] || return 0
        sleep 0.1
    done
    return 1
}
left() { # FOLDER: files of an attach
    find "$1" -maxdepth 1 -name 'gpuprof-attach-*' 2>/dev/null | grep -c .
}
all_ended() { # no process of the program is left, a moment after its end
    for _ in $(seq 20); do
        grep -qzxF "$work" /proc/[0-9]*/cmdline 2>/dev/null || return 0
        sleep 0.1
    done
    return 1
}

scenario() { # TITLE WHAT WANTED COMMAND...: two attaches must each say WANTED
    local title=$1 what=$2 wanted=$3 pid job ok=1 # pid: of the program
    shift 3
    rm -f "$work"/*
    LD_LIBRARY_PATH=$build/lib/gpuprof/sim "$@" tests/real/inside "$root" python3.14 tests/real/python314_target.py "$what" \
        "$work" >"$work/said" 2>&1 &
    job=$!
    if ! until_there "$work/ready"; then
        fail "$title: the program does not start"
        touch "$work/stop"
        return
    fi
    pid=$job
    [ "$what" = forks ] || pid=$(cat "/proc/$job/task/$job/children") # of unshare -f, or of a program that forks once
    pid=${pid% }
    pid=${pid:-$job}
    for _ in 1 2; do
        "${before[@]}" "$build/bin/gpuprof" attach "$pid" >"$work/out" 2>&1 || { fail "$title: attach"; ok=0; }
        grep -q "$wanted" "$work/out" || { fail "$title: not '$wanted'"; ok=0; }
        [ "$(left "/proc/$pid/root/tmp")" = 0 ] || { fail "$title: files in its /tmp"; ok=0; }
        if [ ! -e "$work/blocked" ]; then
            touch "$work/block"
            until_there "$work/blocked" && "$build/bin/gpuprof" stat --json -p "$pid" >"$work/out" 2>&1
            grep -qE '"before_attach_bytes": ?5242880' "$work/out" || { fail "$title: what was there before"; ok=0; }
            grep -qE '"peak_bytes": ?[34][0-9]{6}\b' "$work/out" || { fail "$title: what came afterwards"; ok=0; }
        fi
        "$build/bin/gpuprof" detach "$pid" >"$work/out" 2>&1 || { fail "$title: detach"; ok=0; }
    done
    touch "$work/stop"
    wait "$job" && grep -qx 'failed: \[\] threads: 1' "$work/said" || { fail "$title: the program"; ok=0; }
    [ "$(wc -l <"$work/said")" = 1 ] || { fail "$title: it printed more"; ok=0; }
    all_ended || { fail "$title: a process is left"; ok=0; }
    [ "$ok" = 0 ] || { pass; echo "ok      $title"; }
}

before=()
asked='its Python loaded the library in'
scenario "busy" busy "$asked"
scenario "a child" forked "$asked"
scenario "another user" other "$asked"
scenario "forks while it is asked" forks "$asked"
if unshare -m -p -f --mount-proc true 2>/dev/null; then
    # shellcheck disable=SC2016 # the inner shell expands it
    scenario "namespaces with a /tmp of its own" busy "$asked" unshare -m -p -f --mount-proc \
        bash -c 'here=$PWD && exec 9<"$here" && mount -t tmpfs none /tmp && mkdir -p "$here" &&
            mount -c --bind /proc/self/fd/9 "$here" && cd "$here" && exec "$@" 9<&-' inner
    # Another user could put its own script in the place of ours.
    # shellcheck disable=SC2016
    scenario "a /tmp that others may write to" busy 'borrowed: other users may replace files in its /tmp' unshare -m -p -f --mount-proc \
        bash -c 'here=$PWD && exec 9<"$here" && mount -t tmpfs -o mode=0777 none /tmp && mkdir -p "$here" &&
            mount -c --bind /proc/self/fd/9 "$here" && cd "$here" && exec "$@" 9<&-' inner
    # A /tmp that leads to a folder which only root may write to: no file of ours may appear there.
    mkdir "$work.root" && chmod 755 "$work.root"
    # shellcheck disable=SC2016
    scenario "a /tmp that is a folder of root's" other 'borrowed: its /tmp cannot be used: Permission denied' unshare -m -p -f --mount-proc \
        bash -c 'here=$PWD root=$1 && shift && exec 9<"$here" && mount --bind "$root" /tmp && mkdir -p "$here" &&
            mount -c --bind /proc/self/fd/9 "$here" && cd "$here" && exec "$@" 9<&-' inner "$work.root"
    rm -rf "$work.root"
else
    echo "skipped: namespaces"
fi
scenario "asleep" asleep 'borrowed: its main thread reached no safe point'
scenario "without ctypes" bare 'borrowed: the script failed there: ModuleNotFoundError'
scenario "switched off" busy 'borrowed: remote debugging is disabled there' env PYTHON_DISABLE_REMOTE_DEBUG=1
if said=$(ATTACH_BLOCKS_PYTHON="tests/real/inside $root python3.14" tests/integration/test_attach_blocks.sh "$build" 2>&1); then
    pass && echo "ok      blocks from before: $said"
else
    echo "$said" >"$work/said"
    fail "blocks from before"
fi
# With the rights that the agent's service and its drop-in leave, programs of another user are asked, and borrowed from, too.
service=(tests/deploy/as-unit deploy/systemd/gpuprof-agent.service,deploy/systemd/gpuprof-agent-attach.conf)
if "${service[@]}" true >/dev/null; then
    before=("${service[@]}")
    scenario "another user, from the agent's service" other "$asked"
    scenario "another user, from the agent's service, switched off" other 'borrowed: remote debugging' env PYTHON_DISABLE_REMOTE_DEBUG=1
else
    echo "skipped: the agent's service: $("${service[@]}" true)"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
