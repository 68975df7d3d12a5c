/* SPDX-License-Identifier: MIT
 *
 * test_cuptiname.c: which callback id belongs to which row, by the names that CUPTI gives: ids as in CUDA 13.0, ids that
 * were dealt at random, ids with gaps, and names that no row has.
 */
#include "source/abi.h"
#include "source/internal.h"
#include <criterion/criterion.h>
#include <gpuprof/wire.h>
#include <source/cuptifind.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *names[2 * GP_HOOK_IDS];
static struct gp_wire_cupti out;
static uint32_t last_asked;

static int name_of(int domain, uint32_t id, const char **name)
{
    cr_assert_eq(domain, GP_CUPTI_DOMAIN_DRIVER);
    cr_assert(id > 0 && id < 2 * GP_HOOK_IDS);
    last_asked = id > last_asked ? id : last_asked;
    *name = names[id];
    return names[id] || id % 2 ? GP_CUPTI_OK : 1;
}

static void rows_are(void)
{
    for (uint32_t id = 0; id < GP_HOOK_IDS; id++) {
        const struct gp_hook *hook = gp_dispatch_find(id);
        bool has = false;
        for (unsigned i = 0; i < gp_hook_count && names[id]; i++)
            has |= strcmp(gp_hooks[i].name, names[id]) == 0;
        cr_assert_eq(hook != NULL, has, "id %u is %s, and the row %s", id, names[id] ? names[id] : "free",
                     hook ? hook->name : "none");
        cr_assert(!hook || strcmp(hook->name, names[id]) == 0, "id %u is %s, not %s", id, names[id], hook->name);
    }
    cr_assert_null(gp_dispatch_find(GP_HOOK_IDS));
}

Test(cuptiname, ids_of_cuda_13_0)
{
    unsigned next = 807;
    for (unsigned i = 0; i < gp_hook_count; i++) {
        uint32_t id = gp_hooks[i].id;
        cr_assert(!id || gp_dispatch_find(id) == &gp_hooks[i]);
        names[id ? id : next++] = gp_hooks[i].name;
    }
    cr_assert(!names[500] || names[501]);
    for (uint32_t id = 1; id < 807; id++)
        if (!names[id])
            names[id] = id == 5 ? "cuDeviceGetCount" : "cuMemOther"; /* judged: it has an id of CUDA 13.0 */
    cr_assert_eq(gp_dispatch_name_rows(name_of, &out), !strcmp(names[5], "cuDeviceGetCount") ? 5 : 0);
    rows_are();
    cr_assert_eq(out.strange, 0, "%s", out.strange_names[0]);
    cr_assert_eq(last_asked, next - 1 + 32 < GP_HOOK_IDS ? next - 1 + 32 : GP_HOOK_IDS - 1);
}

/* Every row at another id, one in ten nowhere, and up to 32 free ids in a row. */
Test(cuptiname, ids_at_random)
{
    srand(20251123);
    for (unsigned round = 0; round < 200; round++) {
        uint8_t order[256];
        uint32_t id = 1, pulse = 0, gaps = (unsigned)rand() % 2 ? 3 : 12;
        memset(names, 0, sizeof(names));
        for (unsigned i = 0; i < gp_hook_count; i++) {
            unsigned k = (unsigned)rand() % (i + 1);
            order[i] = order[k];
            order[k] = (uint8_t)i;
        }
        for (unsigned i = 0; i < gp_hook_count && id < GP_HOOK_IDS - 40; i++) {
            if (i == 40 && round % 8)
                names[pulse = id++] = "cuDeviceGetCount";
            if (rand() % 10)
                names[id++] = gp_hooks[order[i]].name;
            else if (rand() % 2)
                names[id++] = "cuOther";
            else
                continue;
            id += rand() % (int)gaps ? 0 : (uint32_t)rand() % 32;
        }
        cr_assert_eq(gp_dispatch_name_rows(name_of, &out), pulse, "round %u", round);
        rows_are();
    }
}

Test(cuptiname, a_gap_that_is_crossed_and_one_that_is_not)
{
    names[10] = "cuDeviceGetCount";
    names[42] = "cuMemAlloc_v2";
    names[75] = "cuMemFree_v2";
    cr_assert_eq(gp_dispatch_name_rows(name_of, &out), 10);
    cr_assert_str_eq(gp_dispatch_find(42)->name, "cuMemAlloc_v2");
    cr_assert_null(gp_dispatch_find(75), "33 ids on");
    cr_assert_eq(last_asked, 42 + 32);
}

Test(cuptiname, without_names_the_ids_are_those_of_cuda_13_0)
{
    const struct gp_hook *before[GP_HOOK_IDS];
    for (uint32_t id = 0; id < GP_HOOK_IDS; id++)
        before[id] = gp_dispatch_find(id);
    out.strange = 7;
    cr_assert_eq(gp_dispatch_name_rows(NULL, &out), 0);
    cr_assert_eq(out.strange, 0);
    names[1] = "cuNothing"; /* nor do names of which none is known change anything */
    cr_assert_eq(gp_dispatch_name_rows(name_of, &out), 0);
    for (uint32_t id = 0; id < GP_HOOK_IDS; id++)
        cr_assert_eq(gp_dispatch_find(id), before[id]);
}

Test(cuptiname, names_that_no_row_has)
{
    static const char *const strange[] = {"cuMemNew",      "cuNewPool", "cuMulticastNew",
                                          "cuNewEndpoint", "cuIpcNew",  "cuStreamCaptureNew"};
    static const char *const others[] = {"cuMemcpyNew",          "cuMemsetNew",
                                         "cuLaunchNew",          "cuLogicalEndpointCreate",
                                         "cuMemGetLocationInfo", "cuLogicalEndpointGetLimits"};
    char row[sizeof(out.strange_names[0])];
    static char longest[300];
    for (uint32_t id = 1; id <= 806; id++)
        names[id] = "cuMemKnown";
    names[1] = "cuMemAlloc_v2";
    for (unsigned i = 0; i < 6; i++) {
        names[807 + 2 * i] = strange[i];
        names[808 + 2 * i] = others[i];
    }
    gp_dispatch_name_rows(name_of, &out);
    cr_assert_eq(out.strange, 6, "%u", out.strange);
    for (unsigned i = 0; i < 6; i++)
        cr_assert_str_eq(out.strange_names[i], strange[i]);
    memset(longest, 'x', sizeof(longest) - 1);
    memcpy(longest, "cuMem", 5);
    for (uint32_t id = 807; id < 807 + GP_WIRE_STRANGE + 2; id++)
        names[id] = longest;
    gp_dispatch_name_rows(name_of, &out);
    cr_assert_eq(out.strange, GP_WIRE_STRANGE + 2);
    memcpy(row, longest, sizeof(row) - 1);
    row[sizeof(row) - 1] = '\0';
    for (unsigned i = 0; i < GP_WIRE_STRANGE; i++)
        cr_assert_str_eq(out.strange_names[i], row);
}
