#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs ranks of a dry run as an array of Slurm jobs, and merges their answers in a job after them.
#
#   slurm.sh WORLD GPU FOLDER RANKS... -- CMD...          slurm.sh 512 h100-80g /shared/out 0 1 511 -- python3 train.py
#
# Each of RANKS is one job: a rank, or a list ("0,64,128") of ranks that send to each other.  Every node sees FOLDER, and finds
# gpuprof and CMD.  No job needs a GPU.  SBATCH_* variables give sbatch more options.  The answer is in FOLDER/answer.txt, the page
# in FOLDER/page.html.
set -eu
usage() { sed -n 's/^# *\(slurm.sh WORLD.*CMD\.\.\.\).*/usage: \1/p' "$0" >&2 && exit 2; }

case ${GPUPROF_FANOUT:-submit} in
    submit)
        [ $# -ge 6 ] || usage
        world=$1 gpu=$2 folder=$3 ranks='' count=0
        shift 3
        while [ $# -gt 1 ] && [ "$1" != -- ]; do
            ranks="$ranks $1" count=$((count + 1))
            shift
        done
        [ "$1" = -- ] && [ $# -gt 1 ] && [ $count -gt 0 ] || usage
        shift
        mkdir -p "$folder"
        export WORLD="$world" GPU="$gpu" FOLDER="$folder" RANKS="$ranks"
        # A copy, because sbatch keeps the script of a job and this one may change meanwhile.
        id=$(GPUPROF_FANOUT=rank sbatch --parsable --job-name=gpuprof-ranks --array=0-$((count - 1)) --ntasks=1 \
            --output="$folder/rank-%a.log" "$0" "$@")
        # afterany: a rank that does not fit has an answer too.
        GPUPROF_FANOUT=merge sbatch --parsable --job-name=gpuprof-merge --dependency="afterany:${id%%;*}" --ntasks=1 \
            --output="$folder/merge.log" "$0"
        ;;
    rank)
        # shellcheck disable=SC2086 # a list of words
        rank=$(printf '%s\n' $RANKS | sed -n "$((SLURM_ARRAY_TASK_ID + 1))p")
        exec gpuprof dryrun --gpu="$GPU" --world="$WORLD" --ranks="$rank" --json --force --record="$FOLDER/rank-$rank.gpuprof" -- \
            "$@" >"$FOLDER/rank-$rank.json"
        ;;
    merge)
        gpuprof dryrun --merge "$FOLDER"/rank-*.json >"$FOLDER/answer.txt" || [ $? = 3 ]
        gpuprof dryrun --merge "$FOLDER"/rank-*.gpuprof --force -o "$FOLDER/page.html" >/dev/null || [ $? = 3 ]
        ;;
esac
