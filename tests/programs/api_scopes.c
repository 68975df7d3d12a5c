/* SPDX-License-Identifier: MIT
 *
 * Scopes: nested, overlapping, of one name, undisturbed by resets, sixteen of them; and shared with
 * `gpuprof scope`: at its one stop before the end the harness lists them, begins "from outside" and
 * ends "outer".
 */
#include <cuda.h>

#include "api.h"

static void show(const char *what, int scope)
{
    int64_t allocated = -77, reserved = -77;
    int result = api_gpuprof_scope_read(scope, 0, &allocated, &reserved);
    printf("%s: %d, %lld %lld\n", what, result, api_kib(allocated), api_kib(reserved));
}

static void come_and_go(size_t bytes)
{
    CHECK(cuMemFree(program_alloc(bytes)));
}

static void fill(void)
{
    int scopes[17], count, i, again;
    for (count = 0; count < 17; count++) {
        scopes[count] = api_gpuprof_scope_begin("many");
        if (scopes[count] < 0)
            break;
    }
    printf("%d, then %d\n", count, scopes[count]);
    REPORT("end", api_gpuprof_scope_end(scopes[0]));
    again = api_gpuprof_scope_begin("again");
    printf("its row was taken again: %d, by another number: %d\n", again >= 0, again != scopes[0]);
    show("the old number", scopes[0]);
    REPORT("end by the old number", api_gpuprof_scope_end(scopes[0]));
    REPORT("end", api_gpuprof_scope_end(again));
    for (i = 1; i < count; i++)
        CHECK(api_gpuprof_scope_end(scopes[i]));
}

int main(void)
{
    int outer, inner, overlapping, twin, cut;
    program_start();
    if (!api_load())
        return 3;
    program_alloc(MIB);
    outer = api_gpuprof_scope_begin("outer");
    come_and_go(8 * MIB);
    inner = api_gpuprof_scope_begin("inner");
    show("inner begins", inner);
    come_and_go(2 * MIB);
    CHECK(api_gpuprof_reset_peak_memory_stats(0));
    overlapping = api_gpuprof_scope_begin("overlapping");
    twin = api_gpuprof_scope_begin("inner");
    printf("twins: %d\n", twin >= 0 && twin != inner);
    show("inner", inner);
    REPORT("end", api_gpuprof_scope_end(inner));
    show("inner, ended", inner);
    come_and_go(4 * MIB);
    show("overlapping", overlapping);
    show("outer", outer);
    api_show("the peak was reset", 0);
    REPORT("no name", api_gpuprof_scope_begin(""));
    REPORT("nothing", api_gpuprof_scope_begin(NULL));
    REPORT("no such device", api_gpuprof_scope_read(outer, 9, NULL, NULL));
    REPORT("no device", api_gpuprof_scope_read(outer, 64, NULL, NULL));
    REPORT("no such scope", api_gpuprof_scope_end(-1));
    cut = api_gpuprof_scope_begin("a name that is longer than what is kept of it");
    REPORT("mark", api_gpuprof_mark("step 1"));
    REPORT("no mark", api_gpuprof_mark(""));
    program_hold();
    show("outer, ended from outside", outer);
    REPORT("end", api_gpuprof_scope_end(outer));
    CHECK(api_gpuprof_scope_end(cut));
    CHECK(api_gpuprof_scope_end(twin));
    CHECK(api_gpuprof_scope_end(overlapping));
    fill();
    return finish();
}
