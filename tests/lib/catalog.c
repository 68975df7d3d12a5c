/* SPDX-License-Identifier: MIT
 *
 * catalog.c: see catalog.h.  A new program in tests/programs gets a row here.
 */
#include "lib/catalog.h"

#include <stdio.h>
#include <string.h>

#include "lib/full.h"
#include "lib/paths.h"

#define KIB 1024ll
#define MIB (1024 * KIB)

/* clang-format off */
const struct catalog_entry catalog[] = {
    {.name = "linear"},
    {.name = "pitched"},
    {.name = "arrays"},
    {.name = "managed"},
    {.name = "pinned"},
    {.name = "pool_default", .rules = {.is_reserved_polled = true}},
    {.name = "pool_short", .rules = {.is_reserved_polled = true}},
    {.name = "pool_created", .rules = {.is_reserved_polled = true}},
    {.name = "pool_devices", .sim = "devices=2", .rules = {.is_reserved_polled = true}},
    {.name = "locations", .sim = "devices=2", .rules = {.is_reserved_polled = true}},
    {.name = "vmm_twice"},
    {.name = "vmm_release"},
    {.name = "vmm_unmap"},
    {.name = "vmm_host"},
    {.name = "multicast"},
    {.name = "endpoint"},
    {.name = "graph_nodes", .rules = {.is_reserved_polled = true, .is_allocated_polled = true}},
    {.name = "graph_add_node", .rules = {.is_reserved_polled = true, .is_allocated_polled = true}},
    {.name = "graph_capture", .rules = {.is_reserved_polled = true, .is_allocated_polled = true}},
    {.name = "graph_moved", .rules = {.is_reserved_polled = true, .is_allocated_polled = true}},
    {.name = "graph_recapture", .rules = {.is_reserved_polled = true, .is_allocated_polled = true}},
    {.name = "ipc", .processes = 2, .has_threads = true /* two processes: each counts its own calls */},
    {.name = "shared_handle"},
    {.name = "external"},
    {.name = "contexts", .rules = {.is_reserved_polled = true}},
    {.name = "primary"},
    {.name = "green"},
    {.name = "errors"},
    {.name = "oom", .sim = "memory=1GiB"},
    {.name = "cross_thread"},
    {.name = "exec"},
    {.name = "exit_now", .exit_code = 7},
    {.name = "exit_worker", .exit_code = 5, .has_threads = true},
    {.name = "leader_ends", .note = "return", .args = {"return"}, .glibc = 34, .has_threads = true},
    {.name = "leader_ends", .note = "pthread_exit", .args = {"pthread_exit"}, .glibc = 34, .has_threads = true},
    {.name = "leader_ends", .note = "exit", .args = {"exit"}, .exit_code = 5, .has_threads = true},
    {.name = "leader_ends", .note = "fork", .args = {"fork"}, .glibc = 34, .has_threads = true},
    {.name = "dlclose"},
    {.name = "variables", .has_library = true},
    {.name = "variables", .note = "global", .args = {"global"}, .has_library = true},
    {.name = "variables", .note = "needed", .args = {"needed"}, .has_library = true},
    {.name = "variables", .note = "earlier", .args = {"earlier"}, .has_library = true},
    {.name = "variables_linked", .has_library = true},
    {.name = "variables_own"},
    {.name = "loader_cross"},
    {.name = "loader_first"},
    {.name = "harmless"},
    {.name = "ptsz", .rules = {.is_reserved_polled = true}},
    {.name = "proc_address", .rules = {.is_reserved_polled = true}},
    {.name = "devices", .sim = "devices=20,memory=1GiB", .note = "20"},
    {.name = "devices", .sim = "devices=2", .note = "2"},
    {.name = "static_tls"},
    /* Slack: the most bytes that the calls in flight on all threads can have together. */
    {.name = "reuse", .has_threads = true, .rules = {.peak_slack_bytes = 8 * 2 * MIB}},
    {.name = "short_threads", .has_threads = true, .rules = {.peak_slack_bytes = 10 * 8 * KIB}},
    {.name = "fork", .has_threads = true, .rules = {.peak_slack_bytes = MIB / 2 + 64 * KIB}},
    {.name = "mixed", .note = "1", .args = {"--seed", "1", "--steps", "400"}, .rules = {.is_reserved_polled = true}},
    {.name = "mixed", .note = "2", .args = {"--seed", "2", "--steps", "400"}, .rules = {.is_reserved_polled = true}},
    {.name = "mixed", .note = "3", .args = {"--seed", "77", "--steps", "2000"}, .rules = {.is_reserved_polled = true}},
    {.name = "mixed", .note = "threads", .args = {"--seed", "5", "--steps", "500", "--threads", "6"}, .has_threads = true,
     .rules = {.is_reserved_polled = true, .peak_slack_bytes = 6 * 6 * MIB}},
    {.name = "linear_rt"},
    {.name = "arrays_rt"},
    {.name = "host_rt"},
    {.name = "pools_rt", .rules = {.is_reserved_polled = true}},
    {.name = "ptds_rt", .rules = {.is_reserved_polled = true}},
    {.name = "graph_rt", .rules = {.is_reserved_polled = true, .is_allocated_polled = true}},
    {.name = "reset_rt"},
    {.name = "errors_rt"},
    {.name = "devices_rt", .sim = "devices=3", .note = "3"},
    {.name = "hook_lookup", .rules = {.is_reserved_polled = true}},
    {.name = "hook_contexts"},
    /* Slack: the most bytes that the calls in flight have, as below. */
    {.name = "ends_race", .args = {"destroy"}, .sim = "memory=1GiB", .note = "destroy", .rules = {.peak_slack_bytes = 1024 * MIB}, .has_threads = true},
    {.name = "ends_race", .args = {"release"}, .sim = "memory=1GiB", .note = "release", .rules = {.peak_slack_bytes = 1024 * MIB}, .has_threads = true},
    {.name = "ends_race", .args = {"reset"}, .sim = "memory=1GiB", .note = "reset", .rules = {.peak_slack_bytes = 1024 * MIB}, .has_threads = true},
    {.name = "ends_race", .args = {"green"}, .sim = "memory=1GiB", .note = "green", .rules = {.peak_slack_bytes = 1024 * MIB}, .has_threads = true},
    /* Programs for the caching allocator; they run without it too. */
    {.name = "shim_streams", .is_heavy = true},
    {.name = "shim_async_free_use", .has_threads = true, .is_heavy = true},
    {.name = "shim_capture"},
    {.name = "shim_capture_long", .sim = "memory=1GiB"},
    {.name = "shim_meminfo", .sim = "memory=1GiB"},
    {.name = "shim_oom_retry", .sim = "memory=1GiB", .is_heavy = true},
    {.name = "shim_range"},
    {.name = "shim_ipc", .has_threads = true /* two processes: each counts its own calls */},
    {.name = "shim_peer", .sim = "devices=2"},
    {.name = "shim_context", .is_heavy = true},
    {.name = "shim_pass", .rules = {.is_reserved_polled = true}},
    {.name = "shim_zero"},
    {.name = "shim_align"},
    {.name = "shim_pattern", .note = "1", .args = {"--seed", "1", "--steps", "600"}},
    {.name = "shim_pattern", .note = "2", .args = {"--seed", "2", "--steps", "300"}},
    {.name = "shim_threads", .args = {"--threads", "4", "--steps", "120"}, .has_threads = true,
     .rules = {.peak_slack_bytes = 4 * 3 * MIB}},
    {.name = "shim_fork", .has_threads = true, .rules = {.peak_slack_bytes = 3 * 64 * KIB}},
    {.name = "shim_exit", .exit_code = 6, .has_threads = true, .rules = {.peak_slack_bytes = 5 * MIB + MIB / 4}},
    {.name = "shim_late", .note = "exit", .args = {"exit"}},
    {.name = "shim_late", .note = "quick_exit", .args = {"quick"}},
    {.name = "shim_late", .note = "_exit", .args = {"now"}},
    {.name = "shim_rt", .rules = {.is_reserved_polled = true}},
    {.name = "shim_srt", .rules = {.is_reserved_polled = true}},
};
/* clang-format on */
const size_t catalog_count = sizeof(catalog) / sizeof(catalog[0]);

bool catalog_is_light(const struct catalog_entry *entry)
{
    return test_is_full() || !entry->is_heavy;
}

const char *catalog_title(const struct catalog_entry *entry)
{
    static char title[64];
    snprintf(title, sizeof(title), "%s%s%s", entry->name, entry->note != NULL ? " " : "",
             entry->note != NULL ? entry->note : "");
    return title;
}

void catalog_options(const struct catalog_entry *entry, const char **argv, struct spawn_options *options)
{
    int i;
    argv[0] = path_program(entry->name);
    for (i = 0; i < CATALOG_ARGS && entry->args[i] != NULL; i++)
        argv[i + 1] = entry->args[i];
    argv[i + 1] = NULL;
    *options = (struct spawn_options){.argv = argv, .sim = entry->sim};
}
