/* SPDX-License-Identifier: MIT
 *
 * stack.h: call sites, and the owners of memory: at which stack it was requested, and which library
 * asked.
 */
#ifndef GP_STACK_STACK_H
#define GP_STACK_STACK_H

#include "base/compiler.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ==== call sites ================================================================================================== */
/* Records at which call site device memory was allocated. Called by account/ and allocator/ on the
 * application's thread, inside a gp_thread_enter/leave pair, with no lock held; independent of CUDA.
 * It never calls malloc, waits for another thread only for a table's lock, and never fails: sites
 * that do not fit are counted in the tables (wire.h).
 *
 * When sites are off, every call here is one load and a branch. */

/* Bytes of session memory that the tables need; pages are used only as the tables fill. */
uint64_t gp_site_bytes(void);

/* Call once, at start. memory: zeroed, shared, `bytes` long, page-aligned. modes: GP_SITES_*, not
 * 0. 0 or -errno. */
int gp_site_start(void *memory, uint64_t bytes, uint32_t modes);

/* Changes the modes of a running program; 0: off. memory as above, used unless the tables exist.
 * Blocks that have a site keep it. One thread at a time, which is not the program's. 0 or -errno,
 * which leaves all as it was. */
int gp_site_switch(void *memory, uint64_t bytes, uint32_t modes);

extern uint32_t gp_site_modes GP_HIDDEN; /* GP_SITES_*; 0: off */
static inline bool gp_site_on(void)
{
    return GP_UNLIKELY(__atomic_load_n(&gp_site_modes, __ATOMIC_RELAXED) != 0);
}

/* Some memory was allocated while stacks were off. From then on every block counts: those without a
 * site count at the site "before stacks" of their device. */
extern uint32_t gp_site_partial GP_HIDDEN;
static inline bool gp_site_is_partial(void)
{
    /* [partial.A] acquire: the tables; pairs with [partial.R]. */
    return GP_UNLIKELY(__atomic_load_n(&gp_site_partial, __ATOMIC_ACQUIRE) != 0);
}

/* Count a summed block without a site; only if gp_site_is_partial. */
void gp_site_plain_alloc(unsigned device, uint64_t bytes);
void gp_site_plain_free(unsigned device, uint64_t bytes);

/* Corrects "before stacks", so that all summed sites of the device together hold `bytes` in `count`
 * blocks. It finds what was live when stacks were switched, and later what a thread that was inside
 * a call at that moment counted twice or not at all. Without effect unless gp_site_is_partial. One
 * thread at a time. */
void gp_site_settle(unsigned device, int64_t bytes, int64_t count);

/* Sets where one sentence is written if Python frames are missing: the reason. text: in the
 * session, zeroed. Call before gp_site_start. */
void gp_site_explain_to(char *text, uint64_t bytes);

/* The site of the calling thread's stack for memory of that kind on that device (index in the
 * session); 0: off, or no such device. A stack that cannot be read has a site without frames.
 * summed: the site counts among the device's bytes (the memory that PyTorch's allocated_bytes
 * sums); otherwise only its own row has numbers. */
uint32_t gp_site_here(int device, enum gp_wire_kind kind, bool summed);

/* Count an allocation and a free at a site, in any order and on any thread. Site 0 is ignored. */
void gp_site_alloc(uint32_t site, uint64_t bytes);
void gp_site_free(uint32_t site, uint64_t bytes);

/* Restarts the peaks of a device and of its sites; -1: of all devices. */
void gp_site_reset(int device);

/* ==== owners ====================================================================================================== */
/* Finds the library that requested memory from the driver. account/ calls it for every driver
 * allocation, on the application's thread, with no lock held.
 *
 * The owner is the innermost object on the stack that is not a mere intermediary. The driver, its
 * runtime, CUPTI, the C library, foreign-function interfaces and gpuprof itself are intermediaries.
 * A library that is linked with the static runtime owns its memory. The walk uses the objects'
 * unwind tables and looks up no names, so it costs about 100 ns and is always on. */

struct gp_owner {
    uint8_t row;       /* in the table of owners; GP_OWNER_UNKNOWN: the stack could not be followed */
    bool segment;      /* memory that a framework divides into blocks it reports: reserved, not allocated */
    uint8_t framework; /* its row, where segment is set */
};

/* Call it once, at start. 0 or -errno: then every owner is unknown. */
int gp_owner_start(void);

/* Finds the owner of the driver call that this thread makes now. */
struct gp_owner gp_owner_here(void);

/* The row of a framework whose blocks are reported without a driver call. */
uint8_t gp_owner_named(const char *owner, const char *library);

/* Copies the table; rows[GP_OWNER_UNKNOWN] is "unknown". Returns the number of rows in use. */
unsigned gp_owner_rows(struct gp_wire_owner rows[GP_WIRE_OWNERS]);

/* Sets a function that gp_owner_here calls when it notices that objects were loaded or unloaded. It
 * runs on the application's thread, with no lock held, before gp_owner_here returns to any thread.
 * pcs: the return addresses of that thread. If it returns false, it is called again at the next
 * allocation. */
void gp_owner_on_change(bool (*changed)(const uint64_t *pcs, unsigned count));

/* From now on a driver allocation is a segment if its stack has an object whose file name starts with
 * `prefix`, a constant string. NULL ends this. */
void gp_owner_segments_of(const char *prefix);

/* ==== native stacks =============================================================================================== */
/* Call gp_native_start once, before the first gp_stack_native (internal.h). */

int gp_native_start(void); /* 0 or -errno */

/* Whether the calling thread is inside a function of the loader: in a constructor or destructor that it
 * runs, and so holds its lock. Before gp_native_start, on the thread that starts the library. */
bool gp_native_is_in_loader(void);

/* ==== the interpreter ============================================================================================= */
/* The C interface of the Python that runs in the process, which nothing is linked with. */

/* Addresses of functions and variables that the interpreter exports, NULL for a name that it lacks; it stays
 * loaded from then on. False: no interpreter is loaded, or the process is forking. It may wait for the
 * loader, so only a thread of ours calls it. */
bool gp_python_symbols(const char *const *names, void **out, unsigned count);

#endif
