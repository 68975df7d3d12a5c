/* SPDX-License-Identifier: MIT
 *
 * turns.h: whose turn it is to be attached to (--attach-containers). Containers take turns, and a
 * container has one turn at a time: one whose programs are slow to attach to delays the others by one
 * turn of its own, however many programs it has. attacher.c calls it, under its lock.
 */
#ifndef GP_AGENT_TURNS_H
#define GP_AGENT_TURNS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define GP_TURNS_NAME       256u
#define GP_TURNS_CONTAINERS 1024u
#define GP_TURNS_PROCESSES  4096u /* of one container */

struct gp_turn_process { /* a program: exec gives the process another stack */
    pid_t pid;
    uint64_t start, stack;
};

struct gp_turn {
    struct gp_turn_process process;
    bool is_again;            /* it was not ready when it was tried before */
    char key[GP_TURNS_NAME];  /* of its container */
    char name[GP_TURNS_NAME]; /* the same, for people */
};

enum gp_turn_end {
    GP_TURN_UNUSED, /* there was nothing to do: the next look asks for it again, and its container goes on at once */
    GP_TURN_LATER,  /* tried and not ready: asked for again after twice as many looks as the last time */
    GP_TURN_DONE,   /* tried: not asked for again */
};

enum gp_turn_met {
    GP_TURN_MET,
    GP_TURN_MANY_PROCESSES,  /* its container has more programs than are kept: it is left alone */
    GP_TURN_MANY_CONTAINERS, /* the same of containers */
};

struct gp_turns;

struct gp_turns *gp_turns_new(void); /* NULL: out of memory */
void gp_turns_free(struct gp_turns *turns);

/* A look at all processes begins; the look has met this one; it has met all, and those that it did
 * not meet have ended or executed another program. */
void gp_turns_look(struct gp_turns *turns);
enum gp_turn_met gp_turns_meet(struct gp_turns *turns, const struct gp_turn_process *process, const char *key,
                               const char *name);
void gp_turns_looked(struct gp_turns *turns);

/* The next turn; false: none now. End it with gp_turns_end. */
bool gp_turns_next(struct gp_turns *turns, struct gp_turn *turn);
void gp_turns_end(struct gp_turns *turns, const struct gp_turn *turn, enum gp_turn_end end);

#endif
