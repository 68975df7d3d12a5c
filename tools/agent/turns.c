/* SPDX-License-Identifier: MIT
 *
 * turns.c: whose turn it is to be attached to (internal.h). It keeps no lock: its caller, attacher.c,
 * has one around each call.
 */
#include <agent/attacher.h>
#include <agent/internal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURNS_UNUSED 256u /* programs with nothing to do that a container may have in one turn */

struct turns_process {
    struct gp_turn_process is;
    uint32_t look;        /* the last one that met it */
    uint32_t again, wait; /* if it was not ready: the look from which it is tried again, and how many are left out */
    bool is_asked;        /* it waits for a turn, or has it */
    bool is_tried;
};

struct turns_container {
    char key[GP_TURNS_NAME], name[GP_TURNS_NAME];
    uint64_t since;  /* when its last turn ended, or when it began to wait for its first one */
    bool is_busy;    /* it has a turn */
    uint32_t unused; /* programs of this turn that had nothing to do */
    struct turns_process *processes;
    uint32_t count, room, asked; /* asked: of how many `is_asked` is set */
};

struct gp_turns {
    struct turns_container *containers[GP_TURNS_CONTAINERS];
    uint32_t count, look;
    uint64_t now; /* counts what `since` orders */
};

struct gp_turns *gp_attacher_turns_new(void)
{
    return calloc(1, sizeof(struct gp_turns));
}

static void container_free(struct turns_container *container)
{
    free(container->processes);
    free(container);
}

void gp_attacher_turns_free(struct gp_turns *turns)
{
    for (uint32_t i = 0; turns && i < turns->count; i++)
        container_free(turns->containers[i]);
    free(turns);
}

/* ---- what a look meets ------------------------------------------------------------------------------------------- */

static struct turns_container *turns_find(const struct gp_turns *turns, const char *key)
{
    for (uint32_t i = 0; i < turns->count; i++)
        if (strcmp(turns->containers[i]->key, key) == 0)
            return turns->containers[i];
    return NULL;
}

static struct turns_container *container_add(struct gp_turns *turns, const char *key)
{
    struct turns_container *container =
        turns->count == GP_TURNS_CONTAINERS ? NULL : calloc(1, sizeof(struct turns_container));
    if (!container)
        return NULL;
    snprintf(container->key, sizeof(container->key), "%s", key);
    container->since = turns->now++;
    return turns->containers[turns->count++] = container;
}

static struct turns_process *process_find(const struct turns_container *container, const struct gp_turn_process *is)
{
    for (uint32_t i = 0; i < container->count; i++) {
        struct turns_process *process = &container->processes[i];
        if (process->is.pid == is->pid && process->is.start == is->start && process->is.stack == is->stack)
            return process;
    }
    return NULL;
}

static struct turns_process *process_add(struct turns_container *container, const struct gp_turn_process *is)
{
    if (container->count == container->room) {
        uint32_t room = container->room ? 2 * container->room : 16;
        void *moved =
            room > GP_TURNS_PROCESSES ? NULL : realloc(container->processes, room * sizeof(*container->processes));
        if (!moved)
            return NULL;
        container->processes = moved;
        container->room = room;
    }
    container->processes[container->count] = (struct turns_process){.is = *is};
    return &container->processes[container->count++];
}

void gp_attacher_turns_look(struct gp_turns *turns)
{
    turns->look++;
}

enum gp_turn_met gp_attacher_turns_meet(struct gp_turns *turns, const struct gp_turn_process *is, const char *key,
                                        const char *name)
{
    struct turns_container *container = turns_find(turns, key);
    if (!container && !(container = container_add(turns, key)))
        return GP_TURN_MANY_CONTAINERS;
    snprintf(container->name, sizeof(container->name), "%s", name);
    struct turns_process *process = process_find(container, is);
    if (!process && !(process = process_add(container, is)))
        return GP_TURN_MANY_PROCESSES;
    process->look = turns->look;
    if (!process->is_asked && (!process->is_tried || (process->wait && turns->look >= process->again))) {
        process->is_asked = true;
        container->asked++;
    }
    return GP_TURN_MET;
}

/* A container without programs loses nothing: it would wait for its first turn behind all others. */
void gp_attacher_turns_looked(struct gp_turns *turns)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < turns->count; i++) {
        struct turns_container *container = turns->containers[i];
        uint32_t stay = 0;
        for (uint32_t k = 0; k < container->count; k++) {
            if (container->processes[k].look == turns->look)
                container->processes[stay++] = container->processes[k];
            else
                container->asked -= container->processes[k].is_asked;
        }
        container->count = stay;
        if (stay || container->is_busy)
            turns->containers[kept++] = container;
        else
            container_free(container);
    }
    turns->count = kept;
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

static struct turns_process *process_next(const struct turns_container *container)
{
    for (uint32_t i = 0; i < container->count; i++)
        if (container->processes[i].is_asked)
            return &container->processes[i];
    return NULL;
}

bool gp_attacher_turns_next(struct gp_turns *turns, struct gp_turn *turn)
{
    struct turns_container *first = NULL;
    for (uint32_t i = 0; i < turns->count; i++) {
        struct turns_container *container = turns->containers[i];
        if (!container->is_busy && container->asked && (!first || container->since < first->since))
            first = container;
    }
    const struct turns_process *process = first ? process_next(first) : NULL;
    if (!process)
        return false;
    first->is_busy = true;
    *turn = (struct gp_turn){.process = process->is, .is_again = process->wait != 0};
    memcpy(turn->key, first->key, sizeof(turn->key));
    memcpy(turn->name, first->name, sizeof(turn->name));
    return true;
}

void gp_attacher_turns_end(struct gp_turns *turns, const struct gp_turn *turn, enum gp_turn_end end)
{
    struct turns_container *container = turns_find(turns, turn->key);
    struct turns_process *process = container ? process_find(container, &turn->process) : NULL;
    if (container) {
        container->is_busy = false;
        container->unused = end == GP_TURN_UNUSED ? container->unused + 1 : 0;
        if (container->unused % TURNS_UNUSED == 0)
            container->since = turns->now++;
    }
    if (!process) /* it ended meanwhile */
        return;
    container->asked -= process->is_asked;
    process->is_asked = false;
    process->is_tried |= end != GP_TURN_UNUSED;
    process->wait = end == GP_TURN_LATER ? 2 * process->wait + !turn->is_again : 0;
    process->again = turns->look + process->wait;
}
