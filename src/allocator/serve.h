/* SPDX-License-Identifier: MIT
 *
 * serve.h: the program's own driver calls, answered with the cache in front.  Each gp_serve_<name> has the entry
 * point's type and is put before it by gp_serve_install; what is not ours goes on to gp_pass_<name>.  Called by
 * src/source/hooks.c on the program's thread, with nothing of ours running there.
 *
 * What a program sees of its own memory is what the driver would show: per block, never per segment.
 */
#ifndef GP_ALLOCATOR_SERVE_H
#define GP_ALLOCATOR_SERVE_H

#include "allocator/served.h"
#include <stdbool.h>
#include <stdint.h>

/* What memory programs get. */
enum gp_serve_kind {
    GP_SERVE_DEDICATED, /* cuMemAlloc's; large blocks are whole driver allocations, so that they can be exported */
    GP_SERVE_LINEAR,    /* cuMemAlloc's; the user wants everything in one chunk */
    GP_SERVE_GROWABLE,  /* from growable segments: no legacy IPC, no copies between devices that are not peers */
};

/* Puts all of them in front. */
bool gp_serve_install(enum gp_serve_kind kind);

/* Enters our code on a thread of the program whose context we serve: its served, or NULL: pass the call on.  Every served
 * needs a leave.  errno is kept. */
struct gp_serve {
    int saved_errno;
};
struct gp_served_context *gp_serve_enter(struct gp_serve *serve);
/* The same where the address says whose memory it is.  False: pass the call on. */
bool gp_serve_look(struct gp_serve *serve);
/* Such a call needs a context, whichever it is: 0, or what the driver says when there is none. */
uint32_t gp_serve_current(void);
void gp_serve_leave(const struct gp_serve *serve);

/* A live block around the address, as the program asked for it: beyond requested_bytes nothing is found. */
struct gp_served_context *gp_serve_block(uint64_t address, struct gp_grant *out);

/* Gives back what is idle in the caches of a device; the bytes. */
uint64_t gp_serve_yield(int device, const struct gp_served_context *except);

/* The driver has no more memory for the program, in the current context: is a second try worth it?  Outside our
 * code. */
bool gp_serve_again(void);

/* Rows of entry points, one table a file. */
struct gp_serve_row {
    const char *name;
    void *server;
};
#define GP_SERVE_ROW(_name)                                                                                            \
    {                                                                                                                  \
#_name, (void *)gp_serve_##_name                                                                               \
    }
/* Each to a NULL name. */
extern const struct gp_serve_row gp_serve_pointer_rows[], gp_serve_context_rows[], gp_serve_memory_rows[];

#endif
