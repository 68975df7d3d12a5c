/* SPDX-License-Identifier: MIT
 *
 * rankfiles.c: which files are the recordings of a job's ranks (rankread.h, load.h): those of a folder, without
 * those of other jobs and runs.  Called by ranks.c and report.c.
 */
#include <cmd/rankread.h>
#include <read/common/hash.h>

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- a folder ---------------------------------------------------------------------------------------------------- */

static int files_ours(const struct dirent *entry)
{
    static const char end[] = ".gpuprof";
    size_t length = strlen(entry->d_name);
    return length > sizeof(end) - 1 && strcmp(entry->d_name + length - (sizeof(end) - 1), end) == 0;
}

void gp_rank_files_free(char **files)
{
    for (char **file = files; file && *file; file++)
        free(*file);
    free(files);
}

int gp_rank_files(const char *command, const char *path, char ***out)
{
    struct stat is;
    struct dirent **names = NULL;
    *out = NULL;
    if (strcmp(path, "-") == 0 || stat(path, &is) != 0 || !S_ISDIR(is.st_mode))
        return GP_EXIT_OK;
    int count = scandir(path, &names, files_ours, versionsort);
    if (count <= 0) {
        gp_error(command, "%s: %s", path,
                 count < 0 ? strerror(errno) : "no recording is in this folder: their names end with .gpuprof");
        free(names);
        return GP_EXIT_FAILED;
    }
    char **files = calloc((size_t)count + 1, sizeof(*files));
    bool ok = files;
    for (int i = 0; i < count; i++) {
        ok = ok && asprintf(&files[i], "%s/%s", path, names[i]->d_name) >= 0;
        if (!ok && files)
            files[i] = NULL;
        free(names[i]);
    }
    free(names);
    if (!ok) {
        gp_rank_files_free(files);
        return gp_memory_error(command);
    }
    *out = files;
    return GP_EXIT_OK;
}

/* ---- jobs and runs ----------------------------------------------------------------------------------------------- */

void gp_rank_set_leave(struct gp_rank_set *set, const char *command, const char *file, const char *why)
{
    struct gp_rank_left *left = &set->left[set->left_count++];
    left->file = file;
    snprintf(left->why, sizeof(left->why), "%s", why);
    gp_error(command, "%s: %s; it is left out", file, why);
}

static bool rank_is_told(const struct gp_job_rank *rank)
{
    return rank->from == GP_RANK_RECORDED && rank->world_size > 0;
}

static int rank_world_order(const void *one, const void *other)
{
    const int32_t *a = one, *b = other;
    return GP_ORDER(*a, *b);
}

struct world {     /* the number of ranks that the recordings name */
    int32_t ranks; /* 0: none does */
    uint32_t count, of;
};

/* The number of ranks that most recordings name, of equal ones the larger. */
static struct world ranks_world(const struct gp_rank_set *set, int32_t *values)
{
    struct world world = {0};
    uint32_t count = 0;
    for (uint32_t i = 0; i < set->count; i++)
        if (rank_is_told(&set->ranks[i]))
            values[count++] = set->ranks[i].world_size;
    qsort(values, count, sizeof(*values), rank_world_order);
    for (uint32_t i = 0, n; i < count; i += n) {
        for (n = 1; i + n < count && values[i + n] == values[i]; n++)
            ;
        if (n >= world.count)
            world = (struct world){values[i], n, count};
    }
    return world;
}

static uint64_t rank_end_unix(const struct gp_job_rank *rank)
{
    return rank->begin_unix_ns + (rank->end_ns - rank->begin_ns);
}

static int rank_begin_order(const void *one, const void *other)
{
    const struct gp_job_rank *const *a = one, *const *b = other;
    return GP_ORDER((*a)->begin_unix_ns, (*b)->begin_unix_ns);
}

struct run { /* recordings whose times overlap */
    uint64_t begin_ns, end_ns;
    uint32_t count, of;
};

/* The run with most recordings, of equal ones the last, if a rank has recordings in several runs.  count 0: none. */
static struct run ranks_run(const struct gp_rank_set *set, struct gp_job_rank **told)
{
    uint32_t count = 0;
    bool again = false;
    struct run best = {0}, now = {0};
    for (uint32_t i = 0; i < set->count; i++)
        if (rank_is_told(&set->ranks[i]))
            told[count++] = &set->ranks[i];
    qsort(told, count, sizeof(*told), rank_begin_order);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t end = rank_end_unix(told[i]);
        if (!now.count || told[i]->begin_unix_ns > now.end_ns) {
            for (uint32_t k = 0; k < i && !again; k++)
                again = told[k]->number == told[i]->number;
            now = (struct run){told[i]->begin_unix_ns, end, 0, count};
        }
        now.count++;
        GP_RAISE(now.end_ns, end);
        if (now.count >= best.count)
            best = now;
    }
    return again ? best : (struct run){0};
}

/* Why the rank is of another job or run; false: it is not, as far as is known. */
static bool rank_is_foreign(const struct gp_job_rank *rank, const struct world *world, bool most_told,
                            const struct run *run, char why[GP_RANK_WHY])
{
    if (rank->from == GP_RANK_ORDER && most_told)
        snprintf(why, GP_RANK_WHY, "it names no rank, and %u recordings are of a job of %d ranks", world->count,
                 world->ranks);
    else if (!rank_is_told(rank))
        return false;
    else if (rank->world_size != world->ranks)
        snprintf(why, GP_RANK_WHY, "it is rank %d of a job of %d ranks, and %u of %u recordings are of one of %d",
                 rank->number, rank->world_size, world->count, world->of, world->ranks);
    else if (rank->number < 0 || rank->number >= world->ranks)
        snprintf(why, GP_RANK_WHY, "it is rank %d, and the job has %d ranks, from 0", rank->number, world->ranks);
    else if (run->count && (rank->begin_unix_ns > run->end_ns || rank_end_unix(rank) < run->begin_ns))
        snprintf(why, GP_RANK_WHY, "it is rank %d of %s run than the one taken, of which %u of %u recordings are",
                 rank->number, rank->begin_unix_ns > run->end_ns ? "a later" : "an earlier", run->count, run->of);
    else
        return false;
    return true;
}

static uint32_t ranks_told(const struct gp_rank_set *set)
{
    uint32_t told = 0;
    for (uint32_t i = 0; i < set->count; i++)
        told += rank_is_told(&set->ranks[i]);
    return told;
}

void gp_rank_set_launchers(struct gp_rank_set *set, const char *command)
{
    uint32_t kept = 0;
    const bool told = ranks_told(set) > 0;
    for (uint32_t i = 0; i < set->count; i++) {
        struct gp_job_rank *rank = &set->ranks[i];
        if (!told || rank->from != GP_RANK_ORDER || rank->device_count) {
            set->ranks[kept++] = *rank;
            continue;
        }
        gp_error(command, "%s: it names no rank and held no GPU memory, as the recording of a launcher: no rank",
                 rank->file);
        gp_rank_free(rank);
    }
    set->count = kept;
}

static void ranks_leave(struct gp_rank_set *set, const char *command, const struct world *world, const struct run *run)
{
    uint32_t kept = 0;
    char why[GP_RANK_WHY];
    const bool most_told = ranks_told(set) * 2 > set->count;
    for (uint32_t i = 0; i < set->count; i++) {
        struct gp_job_rank *rank = &set->ranks[i];
        if (rank_is_foreign(rank, world, most_told, run, why)) {
            gp_rank_set_leave(set, command, rank->file, why);
            gp_rank_free(rank);
        } else {
            set->ranks[kept++] = *rank;
        }
    }
    set->count = kept;
}

/* Which of them is the rank's cannot be known: both may be processes of one rank. */
static void ranks_name_twice(const struct gp_rank_set *set, const char *command)
{
    for (uint32_t i = 0; i < set->count; i++) {
        const struct gp_job_rank *rank = &set->ranks[i], *first = set->ranks;
        while (first < rank && (first->from == GP_RANK_ORDER || first->number != rank->number))
            first++;
        if (first < rank && rank->from != GP_RANK_ORDER)
            gp_error(command, "%s: it is a recording of rank %d, as is %s: both are taken, each as a rank", rank->file,
                     rank->number, first->file);
    }
}

void gp_rank_set_choose(struct gp_rank_set *set, const char *command)
{
    int32_t *values = calloc(set->count + 1ul, sizeof(*values));
    struct gp_job_rank **told = calloc(set->count + 1ul, sizeof(*told));
    struct run run = {0};
    if (values && told) {
        const struct world world = ranks_world(set, values);
        ranks_leave(set, command, &world, &run);
        run = ranks_run(set, told);
        ranks_leave(set, command, &world, &run);
        ranks_name_twice(set, command);
    }
    free(values);
    free(told);
}
