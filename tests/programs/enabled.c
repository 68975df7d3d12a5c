/* SPDX-License-Identifier: MIT
 *
 * Simulated GPU only: prints which callbacks the profiler in this process has enabled, one "domain
 * id name" a line, from the simulator's tool table.  Elsewhere it says so. Leaves nothing.
 */
#include <cuda.h>

#include "finish.h"

#if __has_include("../../sim/tool.h")
#include "../../sim/tool.h"

static void table_print(const struct sim_tool_table *table)
{
    static const unsigned ids[SIM_TOOL_DOMAINS] = {[SIM_TOOL_DRIVER] = SIM_TOOL_DRIVER_IDS,
                                                   [SIM_TOOL_RUNTIME] = SIM_TOOL_RUNTIME_IDS,
                                                   [SIM_TOOL_RESOURCE] = SIM_TOOL_OTHER_IDS,
                                                   [SIM_TOOL_SYNCHRONIZE] = SIM_TOOL_OTHER_IDS,
                                                   [SIM_TOOL_STATE] = SIM_TOOL_OTHER_IDS};
    unsigned domain, id;
    for (domain = 0; domain < SIM_TOOL_DOMAINS; domain++) {
        for (id = 1; id < ids[domain]; id++) {
            if (table->enabled(domain, id) == 1) {
                const char *name = domain == SIM_TOOL_DRIVER ? table->driver_name(id) : NULL;
                printf("%u %u %s\n", domain, id, name != NULL ? name : "-");
            }
        }
    }
}

int main(void)
{
    static const CUuuid uuid = SIM_TOOL_UUID;
    const void *table = NULL;
    program_start();
    CHECK(cuGetExportTable(&table, &uuid));
    if (table != NULL)
        table_print(table);
    return finish();
}
#else
int main(void)
{
    printf("not a simulated GPU\n");
    return 77;
}
#endif
