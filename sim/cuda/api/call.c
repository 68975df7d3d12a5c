/* SPDX-License-Identifier: MIT
 * The steps around every driver call: gate (cuInit, fork), tool callbacks, fault script, call
 * count, latency, the lock. Called by the wrappers that api.h makes.  Never calls a callback with
 * the lock held. */
#include "cuda/contents.h"

/* Only reported calls get a correlation id, so calls that no tool watches cost no shared write. */
static uint32_t sim_correlation_next(void)
{
    static uint32_t next;
    return __atomic_add_fetch(&next, 1, __ATOMIC_RELAXED);
}

static CUresult sim_call_gate(const struct sim_entry *entry)
{
    /* acquire pairs with the release in cuInit: a thread that sees `true` sees the devices. */
    if (__atomic_load_n(&sim_deinitialized, __ATOMIC_RELAXED) && !(entry->flags & SIM_ENTRY_EARLY))
        return CUDA_ERROR_DEINITIALIZED;
    if (entry->flags & SIM_ENTRY_EARLY || __atomic_load_n(&sim_initialized, __ATOMIC_ACQUIRE))
        return CUDA_SUCCESS;
    return CUDA_ERROR_NOT_INITIALIZED;
}

CUresult sim_call_begin(struct sim_call *call, struct sim_entry *entry, const void *params)
{
    *call = (struct sim_call){.entry = entry, .params = params, .caller = call->caller, .previous = sim_self.call};
    sim_self.call = call;
    int device = sim_self.depth ? sim_self.stack[sim_self.depth - 1].device : 0;
    __atomic_add_fetch(&entry->calls[device], 1, __ATOMIC_RELAXED);
    if (sim_tool_wants(SIM_TOOL_DRIVER, entry->cbid)) {
        call->reported = 1;
        call->correlation_id = sim_correlation_next();
        sim_tool_call(call, SIM_TOOL_ENTER, NULL);
    }
    CUresult result = sim_call_gate(entry);
    if (result == CUDA_SUCCESS && __atomic_load_n(&sim_fault_active, __ATOMIC_RELAXED))
        result = sim_fault_check(entry);
    if (result != CUDA_SUCCESS)
        return result;
    sim_clock_add(entry->latency);
    sim_lock();
    call->locked = 1;
    return CUDA_SUCCESS;
}

CUresult sim_call_end(struct sim_call *call, CUresult result)
{
    if (call->locked)
        sim_unlock();
    if (call->reported)
        sim_tool_call(call, SIM_TOOL_EXIT, &result);
    sim_self.call = call->previous;
    if (sim_self.read_bytes && !call->previous) {
        uint64_t bytes = sim_self.read_bytes;
        sim_self.read_bytes = 0;
        sim_read_back(bytes);
    }
    return result;
}
