/* SPDX-License-Identifier: MIT
 *
 * test_owners.c: owners of memory in text and JSON, from made-up processes. The bytes of all rows
 * add up to the totals in each of them.
 */
#include <analyze/analyze.h>
#include <lib/analyses.h>
#include <lib/recmake.h>
#include <show/text/write.h>
#include <unit/show/terminal/view_fixture.h>

static char *owners_text(void (*print)(FILE *, const struct gp_process *, const struct gp_device_view *),
                         const struct gp_process *process)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    print(out, process, &process->devices[0]);
    fclose(out);
    return text;
}

static int64_t owners_sum(const json_t *rows, const char *key)
{
    int64_t sum = 0;
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) sum += json_integer_value(json_object_get(row, key));
    return sum;
}

Test(owners, the_bill_adds_up_to_nvml)
{
    struct gp_system *system = fix_owned(0);
    const struct gp_process *process = &system->processes[0];
    json_t *bill = gp_owner_bill_json(process, &process->devices[0]);
    int64_t total = json_integer_value(json_object_get(bill, "process_bytes"));
    cr_assert_eq(total, (int64_t)(33.5 * GIB));
    cr_assert_eq(owners_sum(json_object_get(bill, "rows"), "bytes"), total);
    json_t *row = json_array_get(json_object_get(bill, "rows"), 0);
    cr_assert_str_eq(json_string_value(json_object_get(row, "owner")), "pytorch");
    cr_assert_str_eq(json_string_value(json_object_get(row, "what")), "allocated");
    cr_assert_eq(json_integer_value(json_object_get(row, "bytes")), (int64_t)(16 * GIB));
    row = json_array_get(json_object_get(bill, "rows"), 1);
    cr_assert_str_eq(json_string_value(json_object_get(row, "what")), "cached");
    cr_assert_eq(json_integer_value(json_object_get(row, "bytes")), (int64_t)(11 * GIB));
    json_decref(bill);
    gp_system_free(system);
}

Test(owners, the_bill_as_text)
{
    struct gp_system *system = fix_owned(0);
    char *text = owners_text(gp_owner_bill_print, &system->processes[0]);
    static const char *const lines[] = {
        "device 0 by owner, now\n",
        "    16.00 GiB  pytorch        allocated  live blocks: the program's tensors\n",
        "    11.00 GiB  pytorch        cached     idle: its cache, of which empty_cache() returns whole segments, or "
        "held by CUDA "
        "graphs and MemPools\n",
        "    3.000 GiB  nccl           allocated  buffers of the communicators\n",
        "    2.000 GiB  shared         cached     kept for later by gpuprof's cache, pools and graphs\n",
        "    512.0 MiB                 untracked  context, code",
        "    33.50 GiB  held by the process according to NVML\n",
        "    6.000 GiB  pytorch        in pools   of these two, at least: segments of CUDA graphs and MemPools\n",
    };
    for (size_t i = 0; i < GP_COUNT(lines); i++)
        cr_assert(strstr(text, lines[i]), "no line \"%s\" in:\n%s", lines[i], text);
    free(text);
    text = owners_text(gp_owner_bill_print, &system->processes[2]);
    cr_assert_str_eq(text, "", "this process does not know its owners");
    free(text);
    gp_system_free(system);
}

Test(owners, an_unknown_total_is_unknown)
{
    struct gp_system *system = fix_owned(0);
    struct gp_process *process = &system->processes[0];
    process->devices[0].untracked_bytes = -1;
    json_t *bill = gp_owner_bill_json(process, &process->devices[0]);
    cr_assert(json_is_null(json_object_get(bill, "process_bytes")));
    json_t *rows = json_object_get(bill, "rows"), *last = json_array_get(rows, json_array_size(rows) - 1);
    cr_assert(json_is_null(json_object_get(last, "owner")) && json_is_null(json_object_get(last, "bytes")));
    char *text = owners_text(gp_owner_bill_print, process);
    cr_assert(strstr(text, "according to NVML: unknown\n"), "%s", text);
    free(text);
    json_decref(bill);
    gp_system_free(system);
}

Test(owners, of_a_site_is_the_first_module_that_does_more_than_pass_requests_on)
{
    static const struct {
        const char *modules[6], *owner;
    } sites[] = {
        {{"/usr/lib/libcuda.so.1", "/opt/x/libcudart.so.12", "/x/libc10_cuda.so", "/usr/bin/python3.13"}, "pytorch"},
        {{"/x/libgpuprof.so", "/usr/lib/libcuda.so.550.1", "/x/libnccl.so.2.20", "/x/libtorch_cuda.so"}, "nccl"},
        {{"/x/libcuda.so.1", "/opt/a/libmyengine.so.4.1", "/usr/bin/python3.13"}, "libmyengine.so"},
        {{"/x/libcuda.so.1", "", "/usr/bin/python3.13", "/lib/libc.so.6"}, "jit"},
        {{"/x/libcuda.so.1", "/lib/libc.so.6"}, "unknown"},
        {{"/x/libcuda.so.1", "/x/llama-addon.node", "/usr/bin/python3.13"}, "llama-addon.node"},
        {{"/x/libcuda.so.1", "/x/site-packages/cupy/cuda/memory.cpython-311-x86_64-linux-gnu.so"}, "cupy"},
        {{"/x/libcuda.so.1", "/x/a_library_with_a_very_long_name_indeed.so.1"},
         "a_library_with_a_very_long_name_indeed.so"},
        {{"/x/libcuda.so.1", "/x/nameless"}, "unknown"}, /* loses its name below: code that Halide's JIT mapped */
    };
    struct recmake *make = recmake_new(1 << 30);
    uint32_t ids[GP_COUNT(sites)];
    char owner[GP_SITE_OWNER];
    for (size_t i = 0; i < GP_COUNT(sites); i++) {
        ids[i] = recmake_native_site(make, GP_KIND_LINEAR, sites[i].modules);
        recmake_alloc(make, 0, GP_KIND_LINEAR, (i + 1) << 20, 1000 * (i + 1), ids[i]);
    }
    recmake_alloc(make, 0, GP_KIND_LINEAR, 99 << 20, 50, 0);
    struct gp_recording *recording = recmake_done(make);
    const struct gp_rec_site *last = &recording->sites[ids[GP_COUNT(sites) - 1]];
    struct gp_rec_module *nameless = &recording->modules[recording->frames[last->first_frame + 1].module];
    cr_assert_str_eq(recording->strings + nameless->path, "/x/nameless");
    nameless->path += (uint32_t)strlen("/x/nameless");
    for (size_t i = 0; i < GP_COUNT(sites); i++) {
        gp_bill_site_owner(recording, ids[i], owner);
        cr_expect_str_eq(owner, sites[i].owner, "%s, not %s", owner, sites[i].owner);
    }
    gp_bill_site_owner(recording, recording->site_count, owner);
    cr_expect_str_eq(owner, "unknown");
    struct gp_peak *peak = analysis_peak(recording, 0, 0);
    struct gp_bill_peak_owners *owners = gp_bill_peak_owners(recording, peak);
    int64_t bytes = 0, count = 0;
    for (uint32_t i = 0; i < owners->count; i++) {
        bytes += owners->rows[i].bytes;
        count += owners->rows[i].count;
        cr_assert(i == 0 || owners->rows[i - 1].bytes >= owners->rows[i].bytes);
    }
    cr_assert_eq(bytes, peak->bytes);
    cr_assert_eq(count, GP_COUNT(sites) + 1);
    cr_assert_str_eq(owners->rows[2].owner, "cupy");
    cr_assert_eq(owners->count, 8, "the three unknown ones are one");
    free(owners);
    free(peak);
    gp_recording_free(recording);
}
