/* SPDX-License-Identifier: MIT
 * siteset.c: the processes whose call sites are on the screen; see siteview.h.  Called by screen.c. */
#include <show/terminal/siteview.h>

#include <errno.h>
#include <show/terminal/state.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GP_SITE_RETRY 5 /* samples until a process without call sites is tried again */

/* ---- scope ----------------------------------------------------------------------------------------------------- */

bool gp_site_in_scope(const struct gp_model *model, const struct gp_row_id *scope, pid_t pid, uint64_t start_time)
{
    if (!scope)
        return true;
    if (scope->pid > 0)
        return scope->pid == pid && scope->start_time == start_time;
    const struct gp_row group = {.id = *scope};
    const struct gp_row_list *list = &model->lists[scope->owner[0] ? GP_LIST_SHARES : GP_LIST_PAIRS];
    for (int i = 0; i < list->count; i++) {
        const struct gp_row *row = &list->rows[i];
        if (row->id.pid == pid && row->id.start_time == start_time && gp_model_row_contains(&group, row))
            return true;
    }
    return false;
}

static struct gp_site_refusal *set_refusal(const struct gp_site_set *set, const struct gp_process *process)
{
    for (int i = 0; i < set->refusal_count; i++) {
        if (set->refusals[i].pid == process->pid && set->refusals[i].start_time == process->start_time)
            return &set->refusals[i];
    }
    return NULL;
}

int gp_site_refused(const struct gp_site_set *set, const struct gp_model *model, const struct gp_row_id *scope,
                    bool for_stacks)
{
    int count = 0;
    for (int i = 0; model->system && i < model->system->process_count; i++) {
        const struct gp_process *process = &model->system->processes[i];
        const struct gp_site_refusal *refusal = set_refusal(set, process);
        if (refusal && (refusal->error == -ENOENT) == for_stacks &&
            gp_site_in_scope(model, scope, process->pid, process->start_time))
            count++;
    }
    return count;
}

int gp_site_shown(const struct gp_site_set *set, const struct gp_model *model, const struct gp_row_id *scope)
{
    int count = 0;
    for (int i = 0; i < set->count; i++)
        count += gp_site_in_scope(model, scope, set->models[i]->pid, set->models[i]->start_time);
    return count;
}

/* ---- processes ------------------------------------------------------------------------------------------------- */

static struct gp_site_model *set_find(const struct gp_site_set *set, const struct gp_process *process)
{
    for (int i = 0; i < set->count; i++) {
        if (set->models[i]->pid == process->pid && set->models[i]->start_time == process->start_time)
            return set->models[i];
    }
    return NULL;
}

static void set_drop(struct gp_site_set *set, int index)
{
    gp_site_model_close(set->models[index]);
    free(set->models[index]);
    set->models[index] = set->models[--set->count];
}

static int set_refuse(struct gp_site_set *set, const struct gp_process *process, unsigned generation, int error)
{
    struct gp_site_refusal *refusal = set_refusal(set, process);
    if (!refusal && set->refusal_count == set->refusal_room) {
        int room = set->refusal_room ? 2 * set->refusal_room : 16;
        struct gp_site_refusal *more = realloc(set->refusals, (size_t)room * sizeof(*more));
        if (!more)
            return -ENOMEM;
        set->refusals = more;
        set->refusal_room = room;
    }
    if (!refusal)
        refusal = &set->refusals[set->refusal_count++];
    *refusal = (struct gp_site_refusal){process->pid, process->start_time, generation, error};
    return 0;
}

static void set_forget(struct gp_site_set *set, const struct gp_process *process)
{
    struct gp_site_refusal *refusal = set_refusal(set, process);
    if (refusal)
        *refusal = set->refusals[--set->refusal_count];
}

/* Removes the refusals of processes that have ended. */
static void set_sweep(struct gp_site_set *set, const struct gp_system *system)
{
    for (int i = set->refusal_count - 1; i >= 0; i--) {
        bool found = false;
        for (int p = 0; p < system->process_count && !found; p++)
            found = set_refusal(set, &system->processes[p]) == &set->refusals[i];
        if (!found)
            set->refusals[i] = set->refusals[--set->refusal_count];
    }
}

/* A process that has ended keeps its last values if it is the whole scope. */
static void set_update(struct gp_site_set *set, const struct gp_model *model, const struct gp_row_id *scope)
{
    char problem[GP_PROBLEM_BYTES] = "";
    set->problem[0] = '\0';
    for (int i = set->count - 1; i >= 0; i--) {
        struct gp_site_model *one = set->models[i];
        const struct gp_process *process = NULL;
        for (int p = 0; p < model->system->process_count && !process; p++) {
            const struct gp_process *candidate = &model->system->processes[p];
            if (candidate->pid == one->pid && candidate->start_time == one->start_time)
                process = candidate;
        }
        gp_site_model_process(one, process);
        if (!process && !(scope && scope->pid == one->pid)) {
            set_drop(set, i);
            continue;
        }
        int err = gp_site_model_update(one, problem);
        if (err)
            snprintf(set->problem, sizeof(set->problem), "cannot read the call sites of pid %d: %s", (int)one->pid,
                     problem[0] ? problem : strerror(-err));
    }
    set_sweep(set, model->system);
}

/* The process that holds most among those that are to be opened, because the user looks for it. */
static const struct gp_process *set_next(struct gp_site_set *set, const struct gp_model *model,
                                         const struct gp_row_id *scope)
{
    const struct gp_process *best = NULL;
    int64_t most = -1;
    bool full = set->count == GP_SITE_PROCESSES;
    set->pending = set->beyond = 0;
    for (int i = 0; i < model->system->process_count; i++) {
        const struct gp_process *process = &model->system->processes[i];
        const struct gp_site_refusal *refusal = set_refusal(set, process);
        int64_t bytes = 0;
        if (!gp_process_readable(process) || process->closed || process->from_agent || set_find(set, process) ||
            (refusal && model->generation - refusal->generation < GP_SITE_RETRY) ||
            !gp_site_in_scope(model, scope, process->pid, process->start_time))
            continue;
        if (full) {
            set->beyond++;
            continue;
        }
        for (int d = 0; d < process->device_count; d++)
            bytes += process->devices[d].wire.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current;
        set->pending++;
        if (bytes > most || !best) {
            best = process;
            most = bytes;
        }
    }
    return best;
}

static int set_open(struct gp_site_set *set, const struct gp_model *model, const struct gp_process *process)
{
    char problem[GP_PROBLEM_BYTES] = "";
    struct gp_site_model *one = calloc(1, sizeof(*one));
    if (!one)
        return -ENOMEM;
    int err = gp_site_model_open(one, process->pid, problem);
    if (err) {
        free(one);
        return err == -ENOMEM ? err : set_refuse(set, process, model->generation, err);
    }
    gp_site_model_process(one, process);
    set_forget(set, process);
    set->models[set->count++] = one;
    return 0;
}

int gp_site_set_step(struct gp_site_set *set, const struct gp_model *model, const struct gp_row_id *scope)
{
    if (!model->system)
        return 0;
    if (set->generation != model->generation)
        set_update(set, model, scope);
    set->generation = model->generation;
    for (int i = set->count - 1; i >= 0 && scope && set->count == GP_SITE_PROCESSES; i--) { /* room for the scope */
        if (!gp_site_in_scope(model, scope, set->models[i]->pid, set->models[i]->start_time))
            set_drop(set, i);
    }
    const struct gp_process *next = set_next(set, model, scope);
    if (!next)
        return 0;
    set->pending--;
    return set_open(set, model, next);
}

void gp_site_set_close(struct gp_site_set *set)
{
    while (set->count)
        set_drop(set, set->count - 1);
    free(set->refusals);
    *set = (struct gp_site_set){0};
}
