/* SPDX-License-Identifier: MIT
 *
 * doors.c: which libraries with pools are looked for, and when (internal.h). Called by torch.c,
 * which is told when objects were loaded or unloaded.
 */
#include "account/framework/internal.h"
#include "base/loader.h"
#include "base/lock.h"

static struct gp_lock lock = GP_LOCK_INIT(GP_RANK_FRAMEWORK);

struct doors_look {
    struct gp_slot_caller caller;
    bool done;
};

/* Inside gp_loader_with, where a lock of ours may be held over walks of the loader's list. */
static void doors_find(void *arg)
{
    struct doors_look *look = arg;
    gp_lock_take(&lock);
    bool rmm = gp_rmm_find(&look->caller), reported = gp_reported_find(&look->caller);
    gp_pjrt_find(&look->caller);
    look->done = rmm && reported;
    gp_lock_give(&lock);
}

bool gp_doors_find(const uint64_t *pcs, unsigned count)
{
    struct doors_look look = {.caller = {pcs, count}};
    if (!gp_loader_with(doors_find, &look))
        return false;
    gp_pjrt_look();
    return look.done;
}

static void doors_restore(void *arg)
{
    (void)arg;
    gp_lock_take(&lock);
    gp_rmm_restore();
    gp_reported_restore();
    gp_lock_give(&lock);
}

void gp_doors_restore(void)
{
    gp_pjrt_restore();
    gp_loader_with(doors_restore, NULL);
}
