#!/bin/bash
# SPDX-License-Identifier: MIT
# gpuprof in NVIDIA's real driver libraries with every CUPTI, on a machine without a GPU: tests/real/README.md.
#
#   tests/real/run.sh BUILD
#
# Prints "N passed, N failed, N skipped".  Exits with 77 and a reason without the packages or the rights.
# Run: slow
set -u
cd "$(dirname "$0")/../.."
build=$(cd "${1:?usage: tests/real/run.sh BUILD}" && pwd)
real=${GPUPROF_REAL:-build/real}
mkdir -p "$real"
real=$(cd "$real" && pwd)
passed=0 failed=0 skipped=0
[ "$(uname -m)" = x86_64 ] || { echo "real/run.sh: only for x86-64"; exit 77; }
[ ! -e /proc/driver/nvidia ] && [ ! -e /dev/dxg ] || { echo "real/run.sh: this machine has a GPU"; exit 77; }

# Toolkits in /usr/local would add their CUPTI to every search, so this runs where they are hidden.
if [ -z "${GPUPROF_REAL_HIDDEN:-}" ]; then
    unshare -m true 2>/dev/null || { echo "real/run.sh: needs root, to hide other CUPTIs from the search"; exit 77; }
    for file in /usr/local/cuda*/lib*/libcupti.so.1[2-9] /usr/local/cuda*/extras/CUPTI/lib64/libcupti.so.1[2-9]; do
        # By its path in the toolkit, of which the folder's name says the version.
        [ -e "$file" ] && [ ! -L "$(dirname "$(dirname "$file")")" ] || continue
        name=$(basename "$(dirname "$(dirname "$(readlink -f "$file")")")")
        [ "${name#cuda-}" != "$name" ] || continue
        mkdir -p "$real/cupti-toolkit-${name#cuda-}"
        for file in "$file" "$(dirname "$(readlink -f "$file")")"/libcudart.so.1[23]; do
            [ ! -e "$file" ] || [ "$file" -ot "$real/cupti-toolkit-${name#cuda-}/${file##*/}" ] ||
                cp -L "$file" "$real/cupti-toolkit-${name#cuda-}/"
        done
    done
    GPUPROF_REAL_HIDDEN=1 exec unshare -m "$0" "$build"
fi
work=$(mktemp -d)
had_control=$(ls /dev/nvidiactl 2>/dev/null) # as root cuInit makes it
finish() {
    rm -rf "$work"
    [ -n "$had_control" ] || rm -f /dev/nvidiactl
}
trap finish EXIT
trap 'exit 130' INT TERM
mkdir "$work/empty"
mount --make-rprivate / && for folder in /usr/local/cuda*; do
    [ ! -d "$folder" ] || [ -L "$folder" ] || mount --bind "$work/empty" "$folder"
done

pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); echo "FAILED $*"; }
skip() { skipped=$((skipped + 1)); echo "skipped $*"; }

# ---- the libraries ---------------------------------------------------------------------------------------------------

drivers=() cuptis=()
get() { # FOLDER RELEASE PACKAGE...
    local said
    said=$(tests/real/fetch "$real/$1" "${@:2}") && return
    skip "$said"
    return 1
}
driver() { # FOLDER RELEASE PACKAGE
    get "$@" && drivers+=("$(dirname "$(find "$real/$1" -name libcuda.so.1 | head -n 1)")")
}
cupti() { # FOLDER RELEASE PACKAGE
    get "$@" && cuptis+=("$real/$1/usr/lib/x86_64-linux-gnu")
}
driver libcuda-525 bookworm libnvidia-tesla-cuda1
driver libcuda-535 bookworm libcuda1
driver libcuda-550 trixie libcuda1
driver libcuda-555 experimental libcuda1
[ ${#drivers[@]} -gt 0 ] || { echo "real/run.sh: no driver library could be had"; exit 77; }
cupti cupti-118 bookworm libcupti11.8
cupti cupti-124 trixie libcupti12 libcudart12
cupti cupti-125 experimental libcupti12
for folder in "$real"/cupti-toolkit-*; do
    [ ! -d "$folder" ] || cuptis+=("$folder")
done
name() { # FOLDER: the part of it that tells one from another
    local short=${1#"$real"/}
    echo "${short%%/*}"
}
# NVIDIA's library is a file libcuda.so.VERSION.  In a plain file libcuda.so.1 gpuprof does not take it for certain that
# there is no GPU, and starts as it does with one.
plain() { # DRIVER
    local folder
    folder=$work/plain/$(name "$1")
    [ -d "$folder" ] || { mkdir -p "$folder" && cp -L "$1/libcuda.so.1" "$folder/"; }
    echo "$folder"
}
program() { # NAME OPTION...
    cc -std=gnu11 -O1 -g -Wall -o "$work/$1" "tests/real/$1.c" "${@:2}" || { echo "real/run.sh: cannot build $1.c"; exit 1; }
}
program start
program timer -shared -fPIC
mv "$work/timer" "$work/timer.so"

# ---- cuInit with and without us --------------------------------------------------------------------------------------
# Without a device nothing of ours may stay: no descriptor, no thread, no file.

bare() { # LIBRARIES COMMAND...
    env -u CUDA_HOME -u CUDA_PATH -u CUDA_INJECTION64_PATH LD_LIBRARY_PATH="$1" "${@:2}"
}
same_start() { # TITLE LIBRARIES VARIABLE...: with the variables cuInit does what it does without
    local plain ours
    bare "$2" "$work/start" >"$work/plain.out" 2>"$work/plain.err"
    plain=$?
    bare "$2" env "${@:3}" "$work/start" >"$work/ours.out" 2>"$work/ours.err"
    ours=$?
    [ -z "${may_stay:-}" ] || sed -i '/^after /d' "$work/plain.out" "$work/ours.out"
    if [ "$plain" = 0 ] && [ "$ours" = 0 ] && cmp -s "$work/plain.out" "$work/ours.out" && cmp -s "$work/plain.err" "$work/ours.err"; then
        pass
    else
        fail "$1: exit $ours instead of $plain"
        diff "$work/plain.out" "$work/ours.out"
        diff "$work/plain.err" "$work/ours.err"
    fi
}
inject=CUDA_INJECTION64_PATH=$build/lib/libgpuprof.so
preload=LD_PRELOAD=$build/lib/libgpuprof-shim.so
all_cuptis=$(IFS=:; echo "${cuptis[*]}")
for driver in "${drivers[@]}"; do
    for cupti in "" "${cuptis[@]}" "$all_cuptis"; do
        title="$(name "$driver") with $(name "${cupti:-none}")"
        [ "$cupti" != "$all_cuptis" ] || title="$(name "$driver") with every CUPTI"
        same_start "$title" "$driver:$cupti" "$inject"
        same_start "$title, preloaded" "$driver:$cupti" "$inject" "$preload"
    done
    may_stay=1 same_start "$(name "$driver"), the whole start" "$(plain "$driver"):$all_cuptis" "$inject"
    same_start "$(name "$driver"), hooks" "$driver" "$inject" "$preload" GPUPROF_SOURCE=hooks
    same_start "$(name "$driver"), hooks without the preload" "$driver" "$inject" GPUPROF_SOURCE=hooks
    same_start "$(name "$driver"), everything asked for" "$driver:$all_cuptis" "$inject" "GPUPROF_RECORD=$work/recording" \
        GPUPROF_STACKS=all GPUPROF_ALLOCATOR=caching "GPUPROF_LOG=debug:$work/log"
    [ ! -e "$work/recording" ] && pass || fail "$(name "$driver"): a recording without a GPU"
    grep -q 'no GPU here: switched off$' "$work/log" && pass || fail "$(name "$driver"): the log does not say why nothing is profiled"
    rm -f "$work/recording" "$work/log"
done

# ---- the time of the start -------------------------------------------------------------------------------------------
# The least processor time of 20 runs: whatever else runs only adds to it, through the caches and the page faults.  CUPTI's
# own part, which is ten times ours, is measured alone and does not count.

timed() { # LIBRARIES VARIABLE: microseconds
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        bare "$1" env "$2" "CUDA_INJECTION64_PATH=$work/timer.so" "$work/start" time 9>&1 >/dev/null
    done | sort -n | head -n 1
}
quick() { # TITLE MICROSECONDS LIMIT
    [ -n "$2" ] && [ "$2" -le "$3" ] && pass || fail "$1: our part of cuInit takes ${2:-?} us instead of $3"
    echo "$1: our part of cuInit takes ${2:-?} us"
}
for driver in "${drivers[@]}"; do
    quick "$(name "$driver") without CUPTI" "$(timed "$(plain "$driver")" "TIMER_LIBRARY=$build/lib/libgpuprof.so")" 5000
done
driver=${drivers[-1]}
for cupti in "${cuptis[@]}"; do
    file=$(find "$cupti" -name 'libcupti.so.1?' | tail -n 1)
    [ -n "$file" ] || continue # the name of 11.8 is not searched for
    ours=$(timed "$(plain "$driver"):$cupti" "TIMER_LIBRARY=$build/lib/libgpuprof.so")
    theirs=$(timed "$(plain "$driver"):$cupti" "TIMER_CUPTI=$file")
    quick "$(name "$driver") with $(name "$cupti")" "$((ours - theirs))" $((5000 + theirs / 2)) # theirs varies by half
done

# ---- what programs get from the hooks --------------------------------------------------------------------------------

counted() { # TITLE FILE: adds the numbers of its last line
    local line
    line=$(tail -n 1 "$2")
    case $line in
    *passed,*failed*) ;;
    *)
        fail "$1: no result"
        tail -n 20 "$2"
        return
        ;;
    esac
    set -- "$1" "$2" $(echo "$line" | grep -oE '[0-9]+')
    passed=$((passed + $3)) failed=$((failed + $4))
    [ "$4" = 0 ] || { echo "FAILED $1"; grep -v '^lacks ' "$2"; }
}
program hooks -Icore -Isrc -Iinclude
for driver in "${drivers[@]}"; do
    bare "$driver" env "$preload" GPUPROF_SOURCE=hooks "$work/hooks" >"$work/hooks.$(name "$driver")" 2>&1
    counted "hooks of $(name "$driver")" "$work/hooks.$(name "$driver")"
done
if [ "$(name "${drivers[-1]}")" = libcuda-555 ]; then
    # A row that no driver has is a wrong name, or its CUDA is newer.
    sed -n 's/^lacks //p' "$work"/hooks.libcuda-* | sort | uniq -c | awk -v n=${#drivers[@]} '$1 == n { print $2 }' >"$work/lacking"
    sed '/^#/d; s/ .*//' tests/real/newer | sort >"$work/newer"
    if cmp -s "$work/lacking" "$work/newer"; then pass; else
        fail "rows that no driver exports (<), and those that tests/real/newer says (>):"
        diff "$work/lacking" "$work/newer"
    fi
fi

# ---- our unwinder in NVIDIA's code -----------------------------------------------------------------------------------

program rules -Icore -Isrc -Iinclude src/stack/cfi.c -ldw -lelf
files=()
for folder in "${drivers[@]}" "${cuptis[@]}"; do
    files+=($(find "$folder" \( -name 'libcuda.so.1' -o -name 'libcupti.so.1*' -o -name 'libcudart.so.1*' \)))
done
"$work/rules" "${files[@]}" >"$work/rules.out" 2>&1
grep 'functions' "$work/rules.out"
counted "unwind rules" "$work/rules.out"
program walk -g -Icore -Isrc -Iinclude -rdynamic "$build/libtarget.a" "$build/libcore.a" -ldl -lpthread -lm
program walkhere -shared -fPIC
mv "$work/walkhere" "$work/walkhere.so"
for driver in "${drivers[@]}"; do
    for cupti in "${cuptis[@]}"; do
        bare "$driver:$cupti" env CUDA_INJECTION64_PATH="$work/walkhere.so" "$work/walk" \
            $(cd "$cupti" && ls libcupti.so.1* libcudart.so.1[23] 2>/dev/null) >"$work/walk.out" 2>&1
        counted "stacks in $(name "$driver") and $(name "$cupti")" "$work/walk.out"
        grep ' stacks' "$work/walk.out"
    done
done

# ---- doctor ----------------------------------------------------------------------------------------------------------

for driver in "${drivers[@]}"; do
    version=$(bare "$driver" "$work/start" 2>/dev/null | sed -n 's/^cuDriverGetVersion 0, //p')
    bare "$driver" "$build/bin/gpuprof" doctor >"$work/doctor" 2>&1
    if grep -q "^driver .*for CUDA $((version / 1000)).$((version % 1000 / 10))\$" "$work/doctor"; then pass; else
        fail "$(name "$driver"): doctor does not say CUDA $((version / 1000)).$((version % 1000 / 10))"
        grep '^driver' "$work/doctor"
    fi
done

# ---- which copies of CUPTI were tried --------------------------------------------------------------------------------
# The log names each with its path and with what it answered.

names_copies() { # DRIVER
    local cupti file
    rm -f "$work/log"
    bare "$(plain "$1"):$all_cuptis" env "$inject" "GPUPROF_LOG=info:$work/log" "$work/start" >/dev/null 2>&1
    if ! grep -q '/libcupti\.so' "$work/log"; then
        skip "$(name "$1"): the log names no path of CUPTI"
        return
    fi
    for cupti in "${cuptis[@]}"; do
        file=$(find "$cupti" -name 'libcupti.so.1?' | tail -n 1)
        [ -n "$file" ] || continue
        if grep -qF "$file" "$work/log"; then pass; else fail "$(name "$1"): the log does not name $file"; cat "$work/log"; fi
    done
}
for driver in "${drivers[@]}"; do names_copies "$driver"; done

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
