/* SPDX-License-Identifier: MIT
 * cuptiname.c: see cuptiname.h. */
#include "source/cuptiname.h"
#include "base/compiler.h"
#include "source/abi.h"
#include "source/dispatch.h"
#include <gpuprof/wire.h>
#include <stddef.h>
#include <string.h>

/* The last id of CUDA 13.0. Entry points up to here that have no row are left out on purpose. */
#define GP_CUPTI_JUDGED 806u
/* So are these of CUDA 13.1 to 13.4, whose ids are not published: they hold no memory. */
static const char *const name_judged[] = {
    "cuLogicalEndpointIdReserve", "cuLogicalEndpointIdRelease", "cuLogicalEndpointCreate",
    "cuLogicalEndpointAddDevice", "cuLogicalEndpointExport",    "cuLogicalEndpointImport",
    "cuLogicalEndpointQuery",     "cuLogicalEndpointGetLimits", "cuMemGetLocationInfo",
};
/* Ids have no gaps today; a few are crossed in case that one is withdrawn. */
#define GP_CUPTI_GAP 32u

static bool name_is_memory(const char *name)
{
    static const char *const parts[] = {"Mem", "Pool", "Multicast", "Endpoint", "Ipc", "Capture"};
    if (strstr(name, "Memcpy") || strstr(name, "Memset"))
        return false;
    for (size_t i = 0; i < GP_COUNT(name_judged); i++)
        if (strcmp(name, name_judged[i]) == 0)
            return false;
    for (size_t i = 0; i < GP_COUNT(parts); i++)
        if (strstr(name, parts[i]))
            return true;
    return false;
}

static void name_strange(struct gp_wire_cupti *out, const char *name)
{
    uint32_t n = out->strange;
    if (n < GP_WIRE_STRANGE) {
        size_t length = strnlen(name, sizeof(out->strange_names[0]) - 1);
        memcpy(out->strange_names[n], name, length);
        out->strange_names[n][length] = '\0';
    }
    __atomic_store_n(&out->strange, n + 1, __ATOMIC_RELEASE);
}

/* The first pass compares each name with the row that has this id in CUDA 13.0, and the second only
 * looks for rows that are left: all 800 names against all rows would take half a millisecond. */
struct gp_name_pass {
    uint8_t bound[GP_HOOK_IDS];
    bool is_found[256]; /* by row + 1 */
    unsigned left;      /* rows without an id */
    uint32_t last;      /* the last id that has a name */
    uint32_t pulse;
};

static void name_bind(struct gp_name_pass *pass, uint32_t id, uint8_t row)
{
    pass->bound[id] = row;
    pass->left -= row && !pass->is_found[row];
    pass->is_found[row] = true;
}

static void name_first(struct gp_name_pass *pass, gp_cupti_name_fn get_name)
{
    const char *name;
    for (uint32_t id = 1; id < GP_HOOK_IDS && id <= pass->last + GP_CUPTI_GAP; id++) {
        if (get_name(GP_CUPTI_DOMAIN_DRIVER, id, &name) != GP_CUPTI_OK || !name)
            continue;
        pass->last = id;
        const struct gp_hook *hook = gp_dispatch_find(id);
        if (hook && strcmp(hook->name, name) == 0)
            name_bind(pass, id, gp_dispatch_row(hook));
        else if (strcmp(name, "cuDeviceGetCount") == 0)
            pass->pulse = id;
    }
}

static void name_second(struct gp_name_pass *pass, gp_cupti_name_fn get_name)
{
    const char *name;
    for (uint32_t id = 1; pass->left && id <= pass->last; id++) {
        if (pass->bound[id] || get_name(GP_CUPTI_DOMAIN_DRIVER, id, &name) != GP_CUPTI_OK || !name)
            continue;
        for (unsigned i = 0; i < gp_hook_count && !pass->bound[id]; i++)
            if (!pass->is_found[i + 1] && strcmp(gp_hooks[i].name, name) == 0)
                name_bind(pass, id, (uint8_t)(i + 1));
    }
}

uint32_t gp_cupti_name_rows(gp_cupti_name_fn get_name, struct gp_wire_cupti *out)
{
    static struct gp_name_pass pass; /* one thread starts us */
    const char *name;
    memset(&pass, 0, sizeof(pass));
    pass.left = gp_hook_count;
    __atomic_store_n(&out->strange, 0, __ATOMIC_RELEASE);
    if (!get_name)
        return 0;
    name_first(&pass, get_name);
    name_second(&pass, get_name);
    for (uint32_t id = GP_CUPTI_JUDGED + 1; id <= pass.last; id++)
        if (!pass.bound[id] && get_name(GP_CUPTI_DOMAIN_DRIVER, id, &name) == GP_CUPTI_OK && name &&
            name_is_memory(name))
            name_strange(out, name);
    if (pass.left < gp_hook_count)
        gp_dispatch_bind(pass.bound);
    return pass.pulse;
}
