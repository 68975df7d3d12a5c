#!/bin/sh
# SPDX-License-Identifier: MIT
# nvtx 0.2.17 (Python's package index): the decorator nvtx.annotate on a generator or a coroutine marks the moment in which the
# object is made, and not its run: the range ends before the first line of the function runs.  So in a timeline, a loader of
# batches or an asynchronous request is a range of some microseconds, and what it allocates lies outside of it.
#
# A tool that takes ranges for steps sees ranges without memory.  The form `with nvtx.annotate(..):` inside of the function works.
. "$(dirname "$0")/lib.sh"
packages all nvtx==0.2.17
command -v cc >/dev/null || { echo "skipped: no C compiler"; exit 77; }
# A tool that prints when a range begins and ends, by the interface of NVTX's headers for tools.
cat >"$work/tool.c" <<'END'
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef void function(void);
struct callbacks {
    size_t bytes;
    int (*table_of)(uint32_t module, function ****table, uint32_t *count);
};

static int push(void *domain, const void *attributes)
{
    (void)domain, (void)attributes;
    return puts("  range begins"), fflush(stdout);
}

static int pop(void *domain)
{
    (void)domain;
    return puts("  range ends"), fflush(stdout);
}

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t number))
{
    const struct callbacks *callbacks = export_table(1);
    function ***table;
    uint32_t count;
    if (!callbacks || !callbacks->table_of(5, &table, &count) || count < 6)
        return 0;
    *table[4] = (function *)push; /* nvtxDomainRangePushEx */
    *table[5] = (function *)pop;  /* nvtxDomainRangePop */
    return 1;
}
END
cc -shared -fPIC -o "$work/tool.so" "$work/tool.c" || exit 1
cat >"$work/ranges.py" <<'END'
import asyncio
import nvtx


@nvtx.annotate("function")
def function():
    print("  it runs", flush=True)


@nvtx.annotate("generator")
def generator():
    print("  it runs", flush=True)
    yield


@nvtx.annotate("coroutine")
async def coroutine():
    print("  it runs", flush=True)


print("function", flush=True)
function()
print("generator", flush=True)
list(generator())
print("coroutine", flush=True)
asyncio.run(coroutine())
END
NVTX_INJECTION64_PATH=$work/tool.so "$work/all/bin/python3" "$work/ranges.py" 2>&1 | same 'function
  range begins
  it runs
  range ends
generator
  range begins
  range ends
  it runs
coroutine
  range begins
  range ends
  it runs'
