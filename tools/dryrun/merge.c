/* SPDX-License-Identifier: MIT
 * merge.c: the recordings of ranks that ran elsewhere as one run: see dryrun.h.  A scheduler starts the ranks, each with --ranks=R
 * --record=FILE; their recordings have all but what the libraries assumed. */
#include <common/loaded.h>
#include <common/messages.h>
#include <common/values.h>
#include <dryrun/dryrun.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

int gp_dryrun_merge_gpu(const char *file, char *name, size_t bytes, int64_t *total_bytes)
{
    struct gp_recording *r = NULL;
    char why[256];
    int rc = gp_recording_open(&r, file, why, sizeof(why), NULL, NULL);
    *name = '\0';
    if (rc) {
        gp_error("dryrun", "--merge: %s: %s: name recordings, which dryrun --record=FILE keeps", file,
                 rc == -EPROTO ? why : strerror(-rc));
        return GP_EXIT_FAILED;
    }
    for (uint32_t d = 0; d < r->device_count && !*name; d++)
        if (r->devices[d].index != GP_WIRE_HOST) {
            snprintf(name, bytes, "%s", r->devices[d].name);
            *total_bytes = r->devices[d].total_bytes;
        }
    gp_recording_free(r);
    return GP_EXIT_OK;
}

int gp_dryrun_merge(struct gp_dryrun_run *run, char *const *files, int64_t local, int64_t budget_bytes)
{
    int rc = GP_EXIT_OK;
    for (size_t i = 0; files[i] && !rc; i++)
        rc = gp_dryrun_read(run, files[i], budget_bytes, i == 0);
    for (uint32_t i = 0; i < run->need_count && !rc; i++)
        for (uint32_t k = 0; k < i && !rc; k++)
            if (run->needs[i].rank >= 0 && run->needs[i].rank == run->needs[k].rank &&
                run->needs[i].pid != run->needs[k].pid) {
                gp_error("dryrun", "--merge: two recordings are of rank %d: name each rank once", run->needs[i].rank);
                rc = GP_EXIT_FAILED;
            }
    if (rc || !run->world)
        return rc;
    struct gp_world world = {.size = run->world, .local = local ? local : GP_WORLD_LOCAL};
    return gp_world_kinds(&world, run) ? GP_EXIT_OK : gp_memory_error("dryrun");
}

int gp_dryrun_merge_words(char **argv, const char **output, bool *json, bool *force)
{
    size_t kept = 0;
    for (size_t i = 0; argv[i]; i++) {
        if (strcmp(argv[i], "--json") == 0)
            *json = true;
        else if (strcmp(argv[i], "--force") == 0)
            *force = true;
        else if (strncmp(argv[i], "--output=", 9) == 0)
            *output = argv[i] + 9;
        else if (strcmp(argv[i], "-o") == 0 && argv[i + 1])
            *output = argv[++i];
        else if (argv[i][0] == '-' && argv[i][1])
            return gp_usage_error(
                "dryrun", "--merge: %s: after the recordings only -o PAGE, --json and --force may follow", argv[i]);
        else
            argv[kept++] = argv[i];
    }
    argv[kept] = NULL;
    return kept ? GP_EXIT_OK : gp_usage_error("dryrun", "--merge: no recording is named");
}
