/* SPDX-License-Identifier: MIT
 * cuptiname.c: see cuptiname.h. */
#include "source/cuptiname.h"
#include "base/compiler.h"
#include "source/abi.h"
#include "source/dispatch.h"
#include <gpuprof/wire.h>
#include <stddef.h>
#include <string.h>

/* The last id of CUDA 13.0: what has no row up to here was left out on purpose. */
#define GP_CUPTI_JUDGED 806u
/* Ids have no gaps today; a few are crossed in case that one is withdrawn. */
#define GP_CUPTI_GAP 32u

static bool name_is_memory(const char *name)
{
    static const char *const parts[] = {"Mem", "Pool", "Multicast", "Endpoint", "Ipc", "Capture"};
    if (strstr(name, "Memcpy") || strstr(name, "Memset"))
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

uint32_t gp_cupti_name_rows(gp_cupti_name_fn get_name, struct gp_wire_cupti *out)
{
    static uint8_t bound[GP_HOOK_IDS];
    uint32_t missed = 0, pulse = 0;
    bool is_any = false;
    memset(bound, 0, sizeof(bound));
    __atomic_store_n(&out->strange, 0, __ATOMIC_RELEASE);
    for (uint32_t id = 1; get_name && id < GP_HOOK_IDS && missed < GP_CUPTI_GAP; id++) {
        const char *name = NULL;
        missed++;
        if (get_name(GP_CUPTI_DOMAIN_DRIVER, id, &name) != GP_CUPTI_OK || !name)
            continue;
        missed = 0;
        bound[id] = gp_hook_named(name, id);
        is_any |= bound[id] != 0;
        if (strcmp(name, "cuDeviceGetCount") == 0)
            pulse = id;
        if (!bound[id] && id > GP_CUPTI_JUDGED && name_is_memory(name))
            name_strange(out, name);
    }
    if (is_any)
        gp_hook_bind(bound);
    return pulse;
}
