/* SPDX-License-Identifier: MIT
 *
 * facts.h: what /proc tells about the process, and the refusals that follow from it; whether its
 * sandbox lets it load the library.
 */
#ifndef GP_ATTACH_FACTS_H
#define GP_ATTACH_FACTS_H

#include <attach/attach.h>
#include <base/compiler.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct gp_attach_map { /* the first mapping of a file: where the ELF header is */
    uint64_t start;
    char path[512]; /* "" not mapped */
};

struct gp_facts {
    pid_t pid;
    char state; /* as in /proc/PID/stat */
    pid_t tgid, tracer, threads;
    unsigned uid, euid, suid;
    int seccomp, filters; /* the mode, and the number of filters; -1 unknown (before Linux 5.9) */
    bool own_filters;     /* more of them than its parent has: it has entered a sandbox */
    struct gp_attach_map loader, libc, libdl, libpthread, cuda, profiler, musl, libpython, python, program, sanitizer;
    uint64_t maps_bytes;
};

/* GP_ATTACH_DONE: nothing speaks against it, and gp_remote_hold was called.  Else why and hint are filled in.
 * Touches nothing. */
enum gp_attach_outcome gp_facts_read(struct gp_facts *facts, struct gp_attach *attach);
/* Only where the libraries are mapped.  0 or -errno. */
int gp_facts_maps(struct gp_facts *facts);
/* Why ptrace was refused with this error number. */
void gp_facts_denied(const struct gp_facts *facts, struct gp_attach *attach, int error);
void gp_attach_why(struct gp_attach *attach, const char *hint, const char *format, ...) GP_PRINTF(3, 4);
/* The value of "Name:\t..." in a file of /proc, as a number; `otherwise` if it is not there. */
long long gp_facts_number(const char *text, const char *name, int base, long long otherwise);

/* Whether a stopped thread may make the system calls of an attach. False: why and hint are filled in. */
bool gp_facts_filter_allows(const struct gp_facts *facts, pid_t tid, struct gp_attach *attach);

#endif
