/* SPDX-License-Identifier: MIT
 *
 * The library enables exactly the callbacks of the rows of hooks.def, and the one by which it sees
 * that CUPTI still works: none of the hot path, none of the runtime.  Read from the simulated driver, where a callback costs time.
 */
#include "integration/command.h"

#define ENABLED_DRIVER   1
#define ENABLED_RUNTIME  2
#define ENABLED_RESOURCE 3
#define ENABLED_IDS      1024

TestSuite(enabled, .timeout = 60);

static const struct {
    unsigned id;
    const char *name;
} hooks[] = {
#define GP_HOOK(_id, _name, ...) {_id, #_name}, /* 0: CUPTI knows the id by the name */
#include "source/hooks.def"
#undef GP_HOOK
};

/* What runs once per kernel, copy or wait (cupti_driver_cbid.h, CUDA 13.0): launches of every age,
 * graph launches, host functions, event records and waits. */
static const unsigned hot[] = {115, 116, 117, 307, 442, 477, 478, 480, 514, 515, 527, 528,
                               652, 653, 119, 121, 126, 295, 436, 440, 441, 587, 588};

#define ENABLED_PULSE 4 /* cuDeviceGetCount: gp_cupti_beat */

static char enabled[8][ENABLED_IDS];
static char driver_names[ENABLED_IDS][64];

/* The id of a row of hooks.def; 0: it has none and is not enabled. */
static unsigned enabled_id(size_t row)
{
    unsigned id = hooks[row].id;
    if (id == 0)
        for (id = ENABLED_IDS - 1; id > 0 && strcmp(driver_names[id], hooks[row].name) != 0; id--)
            ;
    return id;
}

static int enabled_read(void)
{
    const char *argv[] = {path_program("enabled"), NULL};
    unsigned domain, id;
    int count = 0;
    char *line;
    run_program(0, &(struct spawn_options){.argv = argv, .want_library = true});
    for (line = strtok(said.out, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char name[64] = "";
        if (sscanf(line, "%u %u %63s", &domain, &id, name) >= 2 && domain < 8 && id < ENABLED_IDS) {
            enabled[domain][id] = 1;
            if (domain == ENABLED_DRIVER)
                strcpy(driver_names[id], name);
            count++;
        }
    }
    return count;
}

Test(enabled, the_driver_set_is_the_table)
{
    char expected[ENABLED_IDS] = {0};
    size_t i;
    cr_assert_gt(enabled_read(), 0);
    for (i = 0; i < sizeof(hooks) / sizeof(hooks[0]); i++) {
        expected[enabled_id(i)] = 1;
        cr_expect(enabled[ENABLED_DRIVER][enabled_id(i)], "%u %s is in hooks.def and not enabled%s", hooks[i].id,
                  hooks[i].name, enabled_id(i) ? "" : ": the simulator has no id for the name (cupti_names.h)");
    }
    for (i = 0; i < ENABLED_IDS; i++) {
        cr_expect((i && expected[i]) || i == ENABLED_PULSE || !enabled[ENABLED_DRIVER][i],
                  "%zu is enabled and not in hooks.def", i);
    }
}

Test(enabled, nothing_of_the_hot_path)
{
    size_t i;
    cr_assert_gt(enabled_read(), 0);
    for (i = 0; i < sizeof(hot) / sizeof(hot[0]); i++)
        cr_expect(!enabled[ENABLED_DRIVER][hot[i]], "%u is enabled", hot[i]);
    for (i = 0; i < sizeof(hooks) / sizeof(hooks[0]); i++) {
        cr_expect(strstr(hooks[i].name, "Launch") == NULL && strncmp(hooks[i].name, "cuMemcpy", 8) != 0 &&
                      strncmp(hooks[i].name, "cuMemset", 8) != 0 && strncmp(hooks[i].name, "cuEvent", 7) != 0,
                  "%s in hooks.def", hooks[i].name);
    }
    for (i = 0; i < ENABLED_IDS; i++)
        cr_expect(!enabled[ENABLED_RUNTIME][i], "runtime callback %zu is enabled", i);
}

Test(enabled, contexts_are_followed)
{
    cr_assert_gt(enabled_read(), 0);
    cr_expect(enabled[ENABLED_RESOURCE][1], "CONTEXT_CREATED");
    cr_expect(enabled[ENABLED_RESOURCE][2], "CONTEXT_DESTROY_STARTING");
}
