/* SPDX-License-Identifier: MIT
 *
 * rankworkers.c: reads the recordings of many ranks in several processes (rankread.h, workers.h).  Called by ranks.c.
 */
#include <analyze/rankleaks.h>
#include <cmd/rankread.h>
#include <common/workers.h>

#include <stdlib.h>

struct rank_workers {
    struct gp_rank_read *reads;
    const struct gp_load_options *options;
    int rc;
};

/* What a worker sends of a file, before what the rank points to. */
struct rank_answer {
    int rc;
    struct gp_rank_read read;
    uint64_t series_bytes, site_bytes, gpu_bytes, growth_bytes;
};

static bool rank_work(void *arg, uint32_t order)
{
    struct rank_workers *w = arg;
    w->rc = gp_rank_file_read(&w->reads[order], w->options, order);
    return !w->rc;
}

static bool rank_send(void *arg, uint32_t order, int fd)
{
    const struct rank_workers *w = arg;
    struct rank_answer answer = {.rc = w->rc, .read = w->reads[order]};
    struct gp_job_rank *rank = &answer.read.rank;
    answer.series_bytes =
        rank->allocated ? sizeof(*rank->allocated) + rank->allocated->count * sizeof(rank->allocated->points[0]) : 0;
    answer.site_bytes = rank->sites ? rank->site_count * sizeof(*rank->sites) : 0;
    answer.gpu_bytes = rank->gpus ? rank->device_count * sizeof(*rank->gpus) : 0;
    answer.growth_bytes = rank->growth ? sizeof(*rank->growth) : 0;
    bool ok =
        gp_workers_write(fd, &answer, sizeof(answer)) && gp_workers_write(fd, rank->allocated, answer.series_bytes) &&
        gp_workers_write(fd, rank->sites, answer.site_bytes) && gp_workers_write(fd, rank->gpus, answer.gpu_bytes) &&
        gp_workers_write(fd, rank->growth, answer.growth_bytes);
    gp_rank_free(rank);
    return ok;
}

/* The bytes that follow, with room for one more row as ranks.c makes it.  NULL: out of memory, or the worker ended. */
static void *rank_part(int fd, uint64_t bytes, size_t row)
{
    void *part = calloc(1, bytes + row);
    if (part && !gp_workers_read(fd, part, bytes)) {
        free(part);
        part = NULL;
    }
    return part;
}

static bool rank_take(void *arg, uint32_t order, int fd)
{
    struct rank_workers *w = arg;
    struct rank_answer answer;
    if (!gp_workers_read(fd, &answer, sizeof(answer)))
        return false;
    struct gp_job_rank *rank = &answer.read.rank;
    bool series = rank->allocated != NULL, sites = rank->sites != NULL, gpus = rank->gpus != NULL,
         growth = rank->growth != NULL;
    rank->file = order ? w->options->more[order - 1] : w->options->files[0];
    rank->allocated = series ? rank_part(fd, answer.series_bytes, sizeof(rank->allocated->points[0])) : NULL;
    rank->sites = sites ? rank_part(fd, answer.site_bytes, sizeof(*rank->sites)) : NULL;
    rank->gpus = gpus ? rank_part(fd, answer.gpu_bytes, sizeof(*rank->gpus)) : NULL;
    rank->growth = growth ? rank_part(fd, answer.growth_bytes, 0) : NULL;
    w->reads[order] = answer.read;
    w->rc = w->rc ? w->rc : answer.rc;
    return (!series || rank->allocated) && (!sites || rank->sites) && (!gpus || rank->gpus) &&
           (!growth || rank->growth);
}

static void rank_lost(void *arg, uint32_t order, const char *why)
{
    const struct rank_workers *w = arg;
    struct gp_rank_read *read = &w->reads[order];
    gp_rank_free(&read->rank);
    *read =
        (struct gp_rank_read){.refused = true, .rank.file = order ? w->options->more[order - 1] : w->options->files[0]};
    snprintf(read->why, sizeof(read->why), "%s", why);
}

int gp_rank_workers(struct gp_rank_read *reads, uint32_t count, const struct gp_load_options *options)
{
    struct rank_workers w = {.reads = reads, .options = options};
    gp_workers_run(&(struct gp_workers){.count = count,
                                        .doing = "reading",
                                        .arg = &w,
                                        .work = rank_work,
                                        .send = rank_send,
                                        .take = rank_take,
                                        .lost = rank_lost});
    return w.rc;
}
