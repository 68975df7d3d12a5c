/* SPDX-License-Identifier: MIT
 *
 * attacher.h: attaches to processes that the agent has found.
 */
#ifndef GP_AGENT_ATTACHER_H
#define GP_AGENT_ATTACHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct gp_attacher;
struct gp_turns;

/* Attaches to the programs of chosen containers (--attach-containers), on threads of its own. Every
 * ten seconds it looks for processes of these containers. For those that have loaded libcuda.so.1
 * and not our library it runs `gpuprof attach PID`, once for each process and executed program,
 * whether it succeeds or not. Up to eight run at once, each for another container. */

struct gp_attacher_options {
    /* A shell pattern.  With a '/' in front it is compared with the cgroup's path, else with a
     * container's name, NAMESPACE/POD/CONTAINER, and id. */
    const char *pattern;
    const char *library; /* NULL: the installed one */
};

/* 0; -EPERM without CAP_SYS_PTRACE or -ENOTSUP on this processor, with a sentence in why; -errno. */
int gp_attacher_open(struct gp_attacher **out, const struct gp_attacher_options *options, char *why, size_t why_bytes);
/* Waits up to 2 s for the threads. An attach that is under way goes on. */
void gp_attacher_close(struct gp_attacher *attacher);

struct gp_attacher_count {
    uint64_t attached, refused;
};
struct gp_attacher_count gp_attacher_count(const struct gp_attacher *attacher); /* any thread */

/* Whose turn it is to be attached to (--attach-containers). Containers take turns, and a container
 * has one turn at a time: one whose programs are slow to attach to delays the others by one turn of
 * its own, however many programs it has. attacher.c calls it, under its lock. */

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

struct gp_turns *gp_attacher_turns_new(void); /* NULL: out of memory */
void gp_attacher_turns_free(struct gp_turns *turns);

/* A look at all processes begins; the look has met this one; it has met all, and those that it did
 * not meet have ended or executed another program. */
void gp_attacher_turns_look(struct gp_turns *turns);
enum gp_turn_met gp_attacher_turns_meet(struct gp_turns *turns, const struct gp_turn_process *process, const char *key,
                                        const char *name);
void gp_attacher_turns_looked(struct gp_turns *turns);

/* The next turn; false: none now. End it with gp_attacher_turns_end. */
bool gp_attacher_turns_next(struct gp_turns *turns, struct gp_turn *turn);
void gp_attacher_turns_end(struct gp_turns *turns, const struct gp_turn *turn, enum gp_turn_end end);

#endif
