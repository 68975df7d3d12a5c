/* SPDX-License-Identifier: MIT
 *
 * serve.h: answers the program's own driver calls from the cache.  Each gp_serve_<name> has the type of the entry point
 * <name>, and gp_serve_install puts it in front of it.  A call that does not concern the cache goes on to
 * gp_pass_<name>.  src/source/hooks.c calls these functions on the program's thread, outside the library's code.
 *
 * The program sees its memory as the driver would show it: by block, never by segment.
 */
#ifndef GP_ALLOCATOR_SERVE_H
#define GP_ALLOCATOR_SERVE_H

#include "allocator/served.h"
#include <stdbool.h>
#include <stdint.h>

/* The kind of memory that programs get. */
enum gp_serve_kind {
    GP_SERVE_DEDICATED, /* cuMemAlloc's; large blocks are whole driver allocations, so that they can be exported */
    GP_SERVE_LINEAR,    /* cuMemAlloc's; the user wants everything in one chunk */
    GP_SERVE_GROWABLE,  /* from growable segments: no legacy IPC, no copies between devices that are not peers */
};

/* install.c: installs all servers.  Once.  False: the hooks lack an entry point. */
bool gp_serve_install(enum gp_serve_kind kind);
/* Set by gp_serve_install. */
extern enum gp_serve_kind gp_serve_memory_kind;

/* ---- around a served call ---------------------------------------------------------------------------------------- */

struct gp_serve {
    int saved_errno;
};
/* Enters the library's code.  Returns the served context that is current, and gp_serve_leave must follow; or NULL: pass
 * the call on.  errno is kept. */
struct gp_served_context *gp_serve_enter(struct gp_serve *serve);
/* The same for calls whose address identifies the context.  False: pass the call on. */
bool gp_serve_enter_any(struct gp_serve *serve);
void gp_serve_leave(const struct gp_serve *serve);
/* For calls that need a current context, but do not care which: 0, or the driver's error if none is current. */
uint32_t gp_serve_current(void);

/* An address in no allocation.  The driver gives the same answer for it as for memory that was freed. */
#define GP_NOWHERE 16u

/* ---- */

/* The context of the live block around the address.  A block ends after requested_bytes here. */
struct gp_served_context *gp_serve_block(uint64_t address, struct gp_grant *out);

/* Gives the idle memory of the device's caches back to the driver, except that of one context.  Returns the bytes. */
uint64_t gp_serve_yield(int device, const struct gp_served_context *except);

/* The driver is out of memory in the current context.  Gives idle memory back; true: try again.  Called outside the
 * library's code. */
bool gp_serve_retry(void);

/* The entry points that a file serves; each table ends with a NULL name. */
struct gp_serve_row {
    const char *name;
    void *server;
};
#define GP_SERVE_ROW(_name)                                                                                            \
    {                                                                                                                  \
#_name, (void *)gp_serve_##_name                                                                               \
    }
extern const struct gp_serve_row gp_serve_block_rows[], gp_serve_pointer_rows[], gp_serve_context_rows[];
extern const struct gp_serve_row gp_serve_memory_rows[];

#endif
