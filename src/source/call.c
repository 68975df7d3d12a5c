/* SPDX-License-Identifier: MIT
 *
 * call.c: what a driver call has in common for its source, its row and its handler: the questions that a handler may ask
 * the source, and what the two sources tell each other.  The sources set the pointers; the handlers (on_*.c), dispatch.c
 * and the sources use them.
 */
#include "account/feed/context.h"
#include "base/compiler.h"
#include "source/internal.h"
#include "source/source.h"

bool gp_call_timed;
uint32_t gp_call_x_captures;
int (*gp_call_ask_device)(void *context, uint32_t ctx);
uint32_t (*gp_call_ask_number)(void *context);
uint32_t gp_call_slots[GP_CALL_SLOTS];
void (*gp_call_note_context)(void *context, uint32_t number);
void (*gp_call_note_primary)(int device, void *context, uint32_t number);
uint32_t (*gp_call_table_number)(void *context, int device);

int gp_call_device(const struct gp_call *call)
{
    int device = gp_feed_context_device(call->ctx);
    if (GP_LIKELY(device >= 0) || !call->context || !gp_call_ask_device)
        return device;
    device = gp_call_ask_device(call->context, call->ctx);
    if (device >= 0)
        gp_feed_context_learned(call->ctx, device);
    return device;
}
