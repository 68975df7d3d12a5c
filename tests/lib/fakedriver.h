/* SPDX-License-Identifier: MIT
 *
 * fakedriver.h: a CUDA driver inside the test, for src/allocator: contexts, linear and growable memory, streams, events
 * and captures of two devices.  It has no memory, only records, and checks every call: a call that a real driver would
 * refuse, or one of ours that is accounted, is a fault.  The text of the first fault is kept.
 *
 * A test defines gpuprof_preload_next as fakedriver_function, which the library asks for a driver's functions when no
 * libcuda is loaded.  One thread.
 */
#ifndef GP_TEST_LIB_FAKEDRIVER_H
#define GP_TEST_LIB_FAKEDRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKEDRIVER_DEVICES 2
#define FAKEDRIVER_MEMORY  (256ull << 20) /* of a device */

struct fakedriver {
    /* Script: the driver has no function of this name; the call with this number (1: the first) of `fails` returns
     * `code` and does nothing.  number 0: every call. */
    const char *lacks, *fails;
    unsigned number;
    uint32_t code;

    bool program; /* the call under way is the program's own, passed on */
    unsigned calls, failed;
    int capture_mode; /* of the thread */
    uint64_t faults;
    char fault[256];
};
extern struct fakedriver fakedriver;

/* The function of this name, or NULL. */
void *fakedriver_function(const char *name);
unsigned fakedriver_calls(const char *name);

/* What the device holds: linear memory and physical handles. */
uint64_t fakedriver_held(int device);
/* Objects that no end of a context takes away: ranges, handles and mappings. */
unsigned fakedriver_growable(void);
/* Whether all bytes are memory that the device may use. */
bool fakedriver_usable(uint64_t address, uint64_t bytes, int device);
unsigned fakedriver_depth(void); /* of the stack of contexts */
void *fakedriver_current(void);
int fakedriver_context_device(void *ctx); /* -1: not a live context */
/* Contexts that the program retained. */
int fakedriver_references(int device);
/* Live ones. */
unsigned fakedriver_events(void);
/* Work begins in the stream, or all of it ends. */
void fakedriver_submit(void *stream);
void fakedriver_complete(void *stream);
/* Whether SYNC_MEMOPS is on for the allocation around the address. */
bool fakedriver_synced(uint64_t address);

#endif
