/* SPDX-License-Identifier: MIT
 *
 * internal.h: the parts of the agent, for its loop (agent.c). No other folder includes it.
 */
#ifndef GP_AGENT_INTERNAL_H
#define GP_AGENT_INTERNAL_H

#include <agent/kernel/bpf.h>
#include <base/compiler.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ==== attaching =================================================================================================== */
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

struct gp_attacher;

/* 0; -EPERM without CAP_SYS_PTRACE or -ENOTSUP on this processor, with a sentence in why; -errno. */
int gp_attacher_open(struct gp_attacher **out, const struct gp_attacher_options *options, char *why, size_t why_bytes);
/* Waits up to 2 s for the threads. An attach that is under way goes on. */
void gp_attacher_close(struct gp_attacher *attacher);

struct gp_attacher_count {
    uint64_t attached, refused;
};
struct gp_attacher_count gp_attacher_count(const struct gp_attacher *attacher); /* any thread */

/* ==== turns ======================================================================================================= */
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

struct gp_turns;

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

/* ==== ended processes ============================================================================================= */
/* The fallback for exits that the exit tracepoint missed. A pidfd tracks each process in the tables;
 * when a process ends and is still in the tables a moment later, it is removed. Rows of removed
 * cgroups are freed.
 *
 * Needs the host's pid namespace, and CAP_DAC_READ_SEARCH to look cgroups up by number (logged if
 * missing). */

struct gp_deaths;

/* bpf must outlive it. Raise RLIMIT_NOFILE first: half of it may become pidfds. 0 or -errno. */
int gp_deaths_open(struct gp_deaths **out, struct gp_bpf *bpf);
void gp_deaths_close(struct gp_deaths *deaths);
int gp_deaths_fd(const struct gp_deaths *deaths); /* readable (for epoll): call gp_deaths_turn */
void gp_deaths_turn(struct gp_deaths *deaths);    /* bounded work; the fd becomes readable again while work remains */
/* Call once a second: starts a scan of the tables, which the next turns continue. Processes in the
 * tables that are not tracked yet are added; those no longer there are dropped. A cgroup found
 * removed by two scans in a row is forgotten. */
void gp_deaths_second(struct gp_deaths *deaths);

struct gp_deaths_count {
    uint64_t processes;    /* tracked by pidfd now */
    uint64_t polled;       /* without a pidfd now: checked in every scan */
    uint64_t unknown;      /* of these, could not be checked (no descriptors at all) */
    uint64_t removed_late; /* that the tracepoint had missed */
    uint64_t containers;   /* whose rows were freed */
};
struct gp_deaths_count gp_deaths_count(const struct gp_deaths *deaths);

/* ==== failed allocations ========================================================================================== */
/* Reads the ring of events, which keeps it empty, and logs each failed allocation: process, GPU,
 * bytes. The agent is the ring's only reader. */

struct gp_failures;

/* bpf must outlive it; NULL: no ring, for callers of gp_failures_take only. 0 or -errno. */
int gp_failures_open(struct gp_failures **out, struct gp_bpf *bpf);
void gp_failures_close(struct gp_failures *failures);
int gp_failures_fd(const struct gp_failures *failures); /* for epoll; not every record makes it readable */
/* Takes all records in the ring, within a limit. Call it also without an event, twice a second. */
void gp_failures_turn(struct gp_failures *failures);

/* Handles one record as it lies in the ring: called by gp_failures_turn, and by tests. Trusts
 * nothing in it. */
void gp_failures_take(struct gp_failures *failures, const void *data, size_t bytes);

struct gp_failures_count {
    uint64_t records, events, failures;
    uint64_t suppressed; /* failures beyond the log's rate limit */
    uint64_t malformed;  /* records that claim more events than they hold */
};
struct gp_failures_count gp_failures_count(const struct gp_failures *failures);

/* ==== questions to processes ====================================================================================== */
/* Asks running processes for their numbers, so that a newly started agent has all totals at once and
 * not only after each process's next allocation. GP_COMMAND_SNAPSHOT in the session's mailbox makes
 * the process fire a round of batches. A thread of its own does this: a stopped process does not
 * answer, and the agent's loop must not wait.
 *
 * A process is asked up to three times, with pauses of 1 s and 4 s; each request may take one
 * second, during which others are asked. The last request stays in its mailbox, so a stopped process
 * fires when it continues. */

struct gp_querier;

int gp_query_open(struct gp_querier **out); /* 0 or -errno */
/* Waits up to 2 s for the thread. A thread that hangs in a file system is left running until the
 * agent exits. */
void gp_query_close(struct gp_querier *querier);
/* Never waits. A process that is queued already, or was asked and still lives, is not asked again;
 * one that did not answer may be asked again a minute later. */
void gp_query_add(struct gp_querier *querier, pid_t pid);

struct gp_query_count {
    unsigned waiting;  /* queued, or asked and not answered yet */
    uint64_t answered; /* processes that answered, since the start */
    uint64_t silent;   /* asked three times without success: no session, no permission or no answer */
    uint64_t refused;  /* beyond GP_MAPS_PROCESSES at once: not asked at all */
};
struct gp_query_count gp_query_count(struct gp_querier *querier);

/* ==== the service manager ========================================================================================= */
/* The service manager's protocol (sd_notify(3), NOTIFY_SOCKET). The protocol is stable and small;
 * systemd advises against linking its library for that alone. */

/* Sends "READY=1\nSTATUS=..." and the like; does nothing without NOTIFY_SOCKET. Never waits. 0 or
 * -errno. */
int gp_agent_notify(const char *format, ...) GP_PRINTF(1, 2);
/* Half the interval at which the manager expects WATCHDOG=1; 0: it does not (WATCHDOG_USEC,
 * WATCHDOG_PID). */
uint64_t gp_agent_watchdog_ns(void);

#endif
