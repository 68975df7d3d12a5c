/* SPDX-License-Identifier: MIT
 * name.c: the name of a recording's file, and the rank of this process (recorder.h). */
#include "base/compiler.h"
#include "record/recorder.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Of each launcher: the rank, the rank on this machine, the number of ranks. Slurm's number is that
 * of the step: the script of a batch job is not one of the job's tasks. */
static const char *const rank_names[][3] = {
    {"RANK", "LOCAL_RANK", "WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"},
    {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS"}};

static int32_t rank_number(const char *text)
{
    int32_t number = 0;
    if (!text || !*text || strlen(text) > 9)
        return -1;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return -1;
        number = number * 10 + (*text - '0');
    }
    return number;
}

void gp_rank_read(struct gp_rank *out, const char *get(void *arg, const char *name), void *arg)
{
    *out = (struct gp_rank){-1, -1, -1};
    for (size_t i = 0; i < GP_COUNT(rank_names) && out->rank < 0; i++) {
        out->rank = rank_number(get(arg, rank_names[i][0]));
        out->local = out->rank < 0 ? -1 : rank_number(get(arg, rank_names[i][1]));
        out->world = out->rank < 0 ? -1 : rank_number(get(arg, rank_names[i][2]));
    }
}

size_t gp_record_stem(const char *name)
{
    size_t length = strlen(name), suffix = sizeof(GP_NAME_SUFFIX) - 1;
    return length > suffix && strcmp(name + length - suffix, GP_NAME_SUFFIX) == 0 ? length - suffix : length;
}

int gp_record_name(char *out, size_t bytes, const char *pattern, unsigned pid, const struct gp_rank *rank, bool second)
{
    const size_t room = 64; /* for a number, and what is added before the suffix */
    char more[48] = "", suffix[sizeof(GP_NAME_SUFFIX)] = "";
    size_t used = 0;
    bool has_pid = false;
    for (; *pattern && used + room < bytes; pattern++) {
        bool is_pid = pattern[0] == '%' && pattern[1] == 'p';
        if (is_pid)
            used += (size_t)snprintf(out + used, bytes - used, "%u", pid);
        else
            out[used++] = *pattern;
        has_pid |= is_pid;
        pattern += pattern[0] == '%' && (pattern[1] == 'p' || pattern[1] == '%');
    }
    if (*pattern || !used)
        return *pattern ? -ENAMETOOLONG : -EINVAL;
    out[used] = '\0';
    size_t stem = gp_record_stem(out);
    strcpy(suffix, out + stem);
    if (rank->rank >= 0 && rank->world > 1 && !has_pid)
        snprintf(more, sizeof(more), ".rank%d", (int)rank->rank);
    if (second)
        snprintf(more + strlen(more), sizeof(more) - strlen(more), ".%u", pid);
    snprintf(out + stem, bytes - stem, "%s%s", more, suffix);
    return 0;
}
