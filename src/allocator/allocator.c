/* SPDX-License-Identifier: MIT
 * allocator.c: checks the settings, starts and stops the allocator; see allocator.h. */
#include "allocator/allocator.h"
#include "allocator/driver.h"
#include "allocator/internal.h"
#include "allocator/served.h"
#include "allocator/stream.h"
#include "base/log.h"
#include "cache/policy.h"
#include "source/hooks.h"
#include <stdio.h>

static const struct gp_policy *allocator_policy;
static uint32_t x_serving;

/* Did the user request growable memory by name?  Our own policy uses it where callers cannot tell the difference.
 * Behind cuMemAlloc a program can: peer access, exports and RDMA behave differently. */
static bool allocator_wants_growable(const struct gp_policy *found, const char *conf)
{
    struct gp_policy probe = *found;
    char why[16];
    probe.growable = false;
    return conf && gp_policy_configure(&probe, conf, why, sizeof(why)) == 0 && probe.growable;
}

/* cuMemAlloc aligns to 512 bytes (observed; CUDA promises 256), and programs rely on it. */
#define GP_SHIM_ALIGN 512

static bool allocator_serve(enum gp_serve_kind kind, char *why, size_t why_bytes)
{
    if (!gp_hooks_present()) {
        snprintf(why, why_bytes, "needs libgpuprof-shim.so in LD_PRELOAD (gpuprof run does that)");
        return false;
    }
    if (!gp_driver_bind()) {
        snprintf(why, why_bytes, "the driver lacks a function that the cache needs");
        return false;
    }
    gp_stream_watch();
    if (!gp_serve_install(kind)) {
        snprintf(why, why_bytes, "the hooks lack an entry point");
        return false;
    }
    /* [serving.R] release: the policy's name; pairs with [serving.A]. */
    __atomic_store_n(&x_serving, 1, __ATOMIC_RELEASE);
    return true;
}

bool gp_allocator_start(const struct gp_allocator_setup *setup, char *why, size_t why_bytes)
{
    bool asked = setup->allocator && *setup->allocator, conf_ok = true;
    const struct gp_policy *found = gp_policy_find(asked ? setup->allocator : "caching");
    const char *conf = setup->conf && *setup->conf ? setup->conf : NULL;
    struct gp_policy policy;
    *why = '\0';
    if (!found) {
        found = gp_policy_find("caching");
        snprintf(why, why_bytes, "GPUPROF_ALLOCATOR=%.40s is not one of %s", setup->allocator, gp_policy_at(0)->name);
        for (unsigned i = 1; gp_policy_at(i); i++) {
            size_t used = 0;
            while (used < why_bytes && why[used])
                used++;
            snprintf(why + used, why_bytes - used, ", %s", gp_policy_at(i)->name);
        }
        asked = false;
        conf_ok = false;
    }
    policy = *found;
    if (conf && conf_ok)
        conf_ok = gp_policy_configure(&policy, conf, why, why_bytes) == 0;
    allocator_policy = found;
    policy.granule_bytes = policy.granule_bytes < GP_SHIM_ALIGN ? GP_SHIM_ALIGN : policy.granule_bytes;
    gp_served_setup(&policy, setup->limit_bytes);
    gp_failed_setup(conf);
    enum gp_serve_kind kind = allocator_wants_growable(found, conf) ? GP_SERVE_GROWABLE
                              : policy.only_first                   ? GP_SERVE_LINEAR
                                                                    : GP_SERVE_DEDICATED;
    if (asked && !allocator_serve(kind, why, why_bytes))
        return false;
    return conf_ok;
}

const char *gp_allocator_in_use(void)
{
    return gp_allocator_is_used() && allocator_policy ? allocator_policy->name : "off";
}

bool gp_allocator_is_used(void)
{
    /* [serving.A] acquire: pairs with [serving.R]. */
    return __atomic_load_n(&x_serving, __ATOMIC_ACQUIRE) || gp_served_count() > 0;
}

void gp_allocator_prepare(void)
{
    gp_driver_bind();
}

void gp_allocator_stop(void)
{
    gp_driver_stop();
}
