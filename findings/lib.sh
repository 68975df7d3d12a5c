# SPDX-License-Identifier: MIT
# What the scripts of this folder share.  Each begins with: . "$(dirname "$0")/lib.sh"
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

# packages FOLDER NAME==VERSION...: an environment in $work/FOLDER; its python is $work/FOLDER/bin/python3.  Status 77 ends the
# script where the packages cannot be had.
packages() {
    folder=$work/$1
    shift
    python3 -m venv "$folder" >"$work/log" 2>&1 && "$folder/bin/python3" -m pip install --quiet "$@" >"$work/log" 2>&1 || {
        echo "skipped: $* cannot be installed: $(tail -n 1 "$work/log")"
        exit 77
    }
}

# same WANTED: compares the standard input with the text WANTED, prints both where they differ, and ends the script.
same() {
    cat >"$work/seen"
    printf '%s\n' "$1" >"$work/wanted"
    if cmp -s "$work/wanted" "$work/seen"; then
        cat "$work/seen"
        echo "as seen before"
        exit 0
    fi
    echo "changed: the lines with - were seen before, those with + now"
    diff -u "$work/wanted" "$work/seen" | tail -n +4
    exit 1
}
