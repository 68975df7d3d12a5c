/* SPDX-License-Identifier: MIT
 *
 * internal.h: what the files of allocator/ share about the program's calls, failed requests and
 * PyTorch; served.h, backend.h, stream.h, mapping.h, route.h and async.h have the rest, driver.h
 * the driver's functions. No other folder includes them.
 */
#ifndef GP_ALLOCATOR_INTERNAL_H
#define GP_ALLOCATOR_INTERNAL_H

#include "account/feed/failed.h"
#include "allocator/served.h"
#include "base/compiler.h"
#include <stdbool.h>
#include <stdint.h>

/* Answers the program's own driver calls from the cache.  Each gp_serve_<name> has the type of the
 * entry point <name>, and gp_serve_install puts it in front of it.  A call that does not concern the
 * cache goes on to gp_pass_<name>.  src/source/hooks.c calls these functions on the program's
 * thread, outside the library's code.
 *
 * The program sees its memory as the driver would show it: by block, never by segment. */

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

struct gp_serve {
    int saved_errno;
};

/* An address in no allocation.  The driver gives the same answer for it as for memory that was freed. */
#define GP_NOWHERE 16u

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

/* Reports a failed request to the accounts, with what the cache knows about it.  serve.c and async.c
 * call it inside the library's code and with no lock held. */

/* Once, before the first request.  conf: GPUPROF_ALLOC_CONF or NULL; the string must stay valid. */
void gp_failed_setup(const char *conf);
/* api: the name of the function that the program called.  error: CUresult.  bytes: as the program asked. */
void gp_failed_report(struct gp_served_context *served, const char *api, uint32_t error, uint64_t bytes,
                      uint64_t stream);

/* Our own threads; takes no lock of the accounts, and memory from mmap. */
void gp_replay(struct gp_feed_replay *replay);

/* What torch.c needs to know of the PyTorch that called it, and PyTorch's error. */

enum gp_torch_role {
    GP_TORCH_ALONE,   /* no PyTorch was found: a test, or a program of its own */
    GP_TORCH_CURRENT, /* PyTorch's allocator is a pluggable one, so every tensor's memory is asked for here */
    GP_TORCH_POOL,    /* PyTorch caches memory itself, and asks here only for the segments of a torch.cuda.MemPool */
};

/* Any thread, without a lock of ours: the first calls ask the dynamic loader. */
enum gp_torch_role gp_torch_role(void);

/* Raises torch.OutOfMemoryError (error 2) or RuntimeError in PyTorch, which does not check for
 * NULL.  Returns if PyTorch would check (GP_TORCH_POOL), or if the caller is not PyTorch.  caller:
 * the return address of the exported function.  Call it last, outside the library's code and
 * without a lock: it does not come back. */
GP_COLD void gp_torch_raise(uint32_t error, uint64_t bytes, int device, const void *caller);

#endif
