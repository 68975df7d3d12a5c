/* SPDX-License-Identifier: MIT
 * growing.c: the call site that grows most in a full container (internal.h). */
#include <agent/metrics/internal.h>

#include <base/known.h>
#include <base/text.h>
#include <inttypes.h>
#include <read/collect/sites.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A watch is kept for so many pages after its container's forecast went away, which may come back. */
#define GROWING_IDLE 20u

/* ---- names ------------------------------------------------------------------------------------------------------- */

static const char *growing_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* How near a frame is to the program's own code: 0 not at all, 1 a library, 2 its own. */
static unsigned growing_rank(const struct gp_sites *sites, const struct gp_rec_frame *frame)
{
    if (frame->function) {
        const char *file = sites->strings + frame->file;
        return strstr(file, "-packages/") || file[0] == '<' ? 1 : 2;
    }
    if (frame->module >= sites->module_count)
        return 0;
    const char *owner = gp_known_owner(sites->strings + sites->modules[frame->module].path);
    return !owner ? 0 : *owner ? 1 : 2;
}

void gp_growing_label(const struct gp_sites *sites, uint32_t site, char *label, size_t bytes)
{
    const struct gp_rec_site *row = &sites->sites[site];
    const struct gp_rec_frame *best = NULL;
    char text[256] = "unknown";
    unsigned rank = 0;
    for (uint32_t i = 0; i < row->frame_count; i++) {
        const struct gp_rec_frame *frame = &sites->frames[row->first_frame + i];
        unsigned now = growing_rank(sites, frame);
        if (now > rank) {
            rank = now;
            best = frame;
        }
    }
    if (best && best->function) {
        snprintf(text, sizeof(text), "%.120s (%.80s:%" PRIu32 ")", sites->strings + best->function,
                 growing_base(sites->strings + best->file), best->line);
    } else if (best) {
        const struct gp_rec_module *module = &sites->modules[best->module];
        snprintf(text, sizeof(text), "%.120s+0x%" PRIx64, growing_base(sites->strings + module->path),
                 best->pc - module->start + module->offset);
    }
    gp_text_clean(label, bytes, text, sizeof(text));
}

/* ---- watches ----------------------------------------------------------------------------------------------------- */

static void watch_end(struct gp_growing_watch *watch)
{
    gp_sites_close(watch->sites);
    free(watch->before);
    *watch = (struct gp_growing_watch){0};
}

static void watch_begin(struct gp_growing_watch *watch, const struct gp_system_process *process)
{
    char problem[GP_PROBLEM_BYTES];
    *watch = (struct gp_growing_watch){
        .pid = process->key.tgid, .device = process->key.device, .start_ns = process->value.start_ns};
    if (gp_sites_open(&watch->sites, (pid_t)watch->pid, problem) != 0) {
        watch->sites = NULL;
        return;
    }
    watch->before = calloc(watch->sites->site_count + 1ul, sizeof(*watch->before));
    watch->before_count = watch->before ? watch->sites->site_count : 0;
    for (uint32_t i = 0; i < watch->before_count; i++)
        watch->before[i] = watch->sites->sites[i].live_bytes;
}

/* The bytes that the site that grew most grew by; 0: none did. */
static int64_t watch_look(struct gp_growing_watch *watch, uint32_t *site)
{
    char problem[GP_PROBLEM_BYTES];
    int64_t most = 0;
    if (!watch->sites || gp_sites_update(watch->sites, problem) != 0)
        return 0;
    for (uint32_t i = 1; i < watch->sites->site_count; i++) {
        const struct gp_rec_site *row = &watch->sites->sites[i];
        int64_t before = i < watch->before_count ? watch->before[i] : 0;
        if (row->device == watch->device && before >= 0 && row->live_bytes > before &&
            row->live_bytes - before > most) {
            most = row->live_bytes - before;
            *site = i;
        }
    }
    return most;
}

static struct gp_growing_watch *growing_find(struct gp_growing *growing, const struct gp_system_process *process,
                                             bool *begun)
{
    *begun = false;
    for (uint32_t i = 0; i < growing->count; i++) {
        struct gp_growing_watch *watch = &growing->watches[i];
        if (watch->pid == process->key.tgid && watch->device == process->key.device &&
            watch->start_ns == process->value.start_ns)
            return watch;
    }
    if (growing->count == GP_GROWING_MOST)
        return NULL;
    *begun = true;
    watch_begin(&growing->watches[growing->count], process);
    return &growing->watches[growing->count++];
}

static void growing_tidy(struct gp_growing *growing)
{
    for (uint32_t i = 0; i < growing->count;) {
        if (growing->watches[i].idle++ < GROWING_IDLE) {
            i++;
            continue;
        }
        watch_end(&growing->watches[i]);
        growing->watches[i] = growing->watches[--growing->count];
    }
}

void gp_growing_fini(struct gp_growing *growing)
{
    while (growing->count)
        watch_end(&growing->watches[--growing->count]);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* The container of the process on its device, if its memory runs out. */
static const struct gp_row_container *growing_container(const struct gp_rows *rows,
                                                        const struct gp_system_process *process)
{
    for (uint32_t i = 0; i < rows->container_count; i++) {
        const struct gp_row_container *row = &rows->containers[i];
        if (row->seconds_to_oom >= 0 && row->cgroup_id == process->value.cgroup_id &&
            memcmp(row->device->key, process->value.uuid, sizeof(row->device->key)) == 0)
            return row;
    }
    return NULL;
}

/* Without `pid`, processes of one container may have the same labels. */
static struct gp_row_site *growing_row(struct gp_rows *rows, const struct gp_row_site *labels)
{
    for (uint32_t i = 0; i < rows->site_count; i++) {
        struct gp_row_site *row = &rows->sites[i];
        if (row->device == labels->device && strcmp(row->namespace_, labels->namespace_) == 0 &&
            strcmp(row->pod, labels->pod) == 0 && strcmp(row->container, labels->container) == 0 &&
            gp_row_who_order(&row->who, &labels->who) == 0 && strcmp(row->site, labels->site) == 0)
            return row;
    }
    rows->sites[rows->site_count] = *labels;
    return &rows->sites[rows->site_count++];
}

static void growing_add(struct gp_rows *rows, const struct gp_row_container *container, enum gp_metrics_processes how,
                        const struct gp_system_process *process, const char *site, int64_t bytes)
{
    struct gp_row_site labels = {.device = container->device,
                                 .namespace_ = container->namespace_,
                                 .pod = container->pod,
                                 .container = container->container,
                                 .who = gp_row_who(how, process)};
    snprintf(labels.site, sizeof(labels.site), "%s", site);
    struct gp_row_site *row = growing_row(rows, &labels);
    if (__builtin_add_overflow(row->growth_bytes, bytes, &row->growth_bytes))
        row->growth_bytes = INT64_MAX;
}

bool gp_growing_make(struct gp_growing *growing, struct gp_rows *rows, enum gp_metrics_processes how,
                     const struct gp_system_view *view, uint32_t most)
{
    most = most < GP_GROWING_MOST ? most : GP_GROWING_MOST;
    rows->sites = calloc(most + 1ul, sizeof(*rows->sites));
    if (!rows->sites)
        return false;
    growing_tidy(growing);
    for (uint32_t i = 0; i < view->process_count && rows->site_count < most; i++) {
        const struct gp_system_process *process = &view->processes[i];
        const struct gp_row_container *container = growing_container(rows, process);
        bool begun;
        struct gp_growing_watch *watch = container ? growing_find(growing, process, &begun) : NULL;
        char label[128];
        uint32_t site = 0;
        if (!watch)
            continue;
        watch->idle = 0;
        int64_t bytes = begun ? 0 : watch_look(watch, &site);
        if (bytes <= 0)
            continue;
        gp_growing_label(watch->sites, site, label, sizeof(label));
        growing_add(rows, container, how, process, label, bytes);
    }
    return true;
}
