/* SPDX-License-Identifier: MIT
 *
 * ledger.c: reads the ledger of the simulated GPU and computes a replay's figures from it; see
 * internal.h.
 */
#include "convert/replay/internal.h"
#include <base/compiler.h>
#include <errno.h>
#include <jansson.h>
#include <string.h>

static uint64_t ledger_number(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));
    return value > 0 ? (uint64_t)value : 0;
}

/* The ledger counts entry points per device; a replay reports their sum. */
static void ledger_calls(struct gp_replay_ledger *ledger, json_t *calls)
{
    const char *name;
    json_t *value;
    json_object_foreach(calls, name, value)
    {
        uint32_t at = 0;
        while (at < ledger->call_count && strcmp(ledger->calls[at].name, name) != 0)
            at++;
        if (at == GP_COUNT(ledger->calls))
            continue; /* a replay uses three dozen entry points */
        if (at == ledger->call_count) {
            snprintf(ledger->calls[at].name, sizeof(ledger->calls[at].name), "%s", name);
            ledger->call_count++;
        }
        ledger->calls[at].calls += (uint64_t)json_integer_value(value);
    }
}

int gp_replay_ledger_take(struct gp_replay_ledger *ledger, const struct gp_replay_driver *driver, const char *path)
{
    memset(ledger, 0, sizeof(*ledger));
    int rc = driver->sim_ledger_write(path);
    if (rc)
        return rc;
    json_t *root = json_load_file(path, 0, NULL), *devices = json_object_get(root, "devices");
    if (!root)
        return -EPROTO;
    ledger->simulated_ns = ledger_number(root, "simulated_ns");
    for (size_t d = 0; d < json_array_size(devices) && d < GP_REPLAY_DEVICES; d++) {
        json_t *device = json_array_get(devices, d), *reserved = json_object_get(device, "reserved_bytes");
        ledger->devices[d].reserved = ledger_number(reserved, "current");
        ledger->devices[d].reserved_peak = ledger_number(reserved, "peak");
        ledger->devices[d].hazards = ledger_number(device, "hazards");
        ledger_calls(ledger, json_object_get(device, "driver_calls"));
        ledger->device_count++;
    }
    json_decref(root);
    return 0;
}

static uint64_t ledger_before(const struct gp_replay_ledger *ledger, const char *name)
{
    for (uint32_t i = 0; i < ledger->call_count; i++) {
        if (strcmp(ledger->calls[i].name, name) == 0)
            return ledger->calls[i].calls;
    }
    return 0;
}

/* Calls that allocate or free driver memory.  The prefixes cover the variants of a call. */
static bool ledger_is_memory(const char *name)
{
    static const char *const prefixes[] = {"cuMemAlloc",     "cuMemFree",         "cuMemCreate",    "cuMemRelease",
                                           "cuMemMap",       "cuMemUnmap",        "cuMemSetAccess", "cuMemAddress",
                                           "cuMemHostAlloc", "cuMemHostRegister", "cuMemPool"};
    for (size_t i = 0; i < GP_COUNT(prefixes); i++) {
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    }
    return false;
}

/* Calls that make a thread or stream wait for another one, or query whether it would wait. */
static bool ledger_is_fence(const char *name)
{
    return strncmp(name, "cuEvent", 7) == 0 || strcmp(name, "cuStreamWaitEvent") == 0 ||
           strncmp(name, "cuStreamSynchronize", 19) == 0 || strncmp(name, "cuCtxSynchronize", 16) == 0;
}

static void ledger_call(struct gp_replay_result *result, const char *name, uint64_t calls, uint64_t second)
{
    bool memory = ledger_is_memory(name), fence = ledger_is_fence(name);
    if (calls == 0 || !(memory || fence))
        return;
    if (memory) {
        result->driver_calls += calls;
        result->driver_calls_second_half += second;
    } else {
        result->fence_calls += calls;
        result->fence_calls_second_half += second;
    }
    if (result->call_count < GP_REPLAY_CALLS) {
        struct gp_replay_call *call = &result->calls[result->call_count++];
        snprintf(call->name, sizeof(call->name), "%s", name);
        call->calls = calls;
        call->second_half = second;
        call->memory = memory;
    }
}

void gp_replay_ledger_count(struct gp_replay_result *result, const struct gp_replay_ledger *begin,
                            const struct gp_replay_ledger *half, const struct gp_replay_ledger *end)
{
    result->simulated_ns = end->simulated_ns - begin->simulated_ns;
    for (uint32_t d = 0; d < result->device_count; d++) {
        /* The memory of the context itself existed at the start. */
        uint64_t peak = end->devices[d].reserved_peak - begin->devices[d].reserved;
        result->devices[d].peak_reserved_bytes = peak;
        result->devices[d].hazards = end->devices[d].hazards - begin->devices[d].hazards;
        result->peak_reserved_bytes += peak;
        result->peak_allocated_bytes += result->devices[d].peak_allocated_bytes;
    }
    for (uint32_t i = 0; i < end->call_count; i++) {
        const char *name = end->calls[i].name;
        ledger_call(result, name, end->calls[i].calls - ledger_before(begin, name),
                    end->calls[i].calls - ledger_before(half, name));
    }
}
