/* SPDX-License-Identifier: MIT
 *
 * api.h: gpuprof.h as a program uses it that also runs without the library: every function by name,
 * at run time, out of the copy that is in the process (GPUPROF_TEST_LIBRARY names one to open where
 * none is).
 */
#ifndef GP_TEST_PROGRAMS_API_H
#define GP_TEST_PROGRAMS_API_H

#include <gpuprof/gpuprof.h>

#include "finish.h"

/* clang-format off */
#define API_ROWS(_row) \
    _row(int, gpuprof_active, (void)) \
    _row(int, gpuprof_device_count, (void)) \
    _row(int64_t, gpuprof_memory_allocated, (int)) \
    _row(int64_t, gpuprof_max_memory_allocated, (int)) \
    _row(int64_t, gpuprof_memory_reserved, (int)) \
    _row(int64_t, gpuprof_max_memory_reserved, (int)) \
    _row(int, gpuprof_reset_max_memory_allocated, (int)) \
    _row(int, gpuprof_reset_max_memory_reserved, (int)) \
    _row(int, gpuprof_reset_peak_memory_stats, (int)) \
    _row(int, gpuprof_reset_accumulated_memory_stats, (int)) \
    _row(const char *, gpuprof_stat_name, (unsigned)) \
    _row(int, gpuprof_memory_stats, (int, int64_t *, unsigned)) \
    _row(int, gpuprof_memory_stat, (int, const char *, int64_t *)) \
    _row(int, gpuprof_mem_get_info, (int, int64_t *, int64_t *)) \
    _row(int, gpuprof_owned, (int, struct gpuprof_owned *, size_t)) \
    _row(const char *, gpuprof_host_stat_name, (unsigned)) \
    _row(int, gpuprof_host_memory_stats, (int64_t *, unsigned)) \
    _row(int, gpuprof_reset_host_memory_stats, (int)) \
    _row(int, gpuprof_scope_begin, (const char *)) \
    _row(int, gpuprof_scope_read, (int, int, int64_t *, int64_t *)) \
    _row(int, gpuprof_scope_end, (int)) \
    _row(int, gpuprof_mark, (const char *)) \
    _row(int64_t, gpuprof_walk, (int, struct gpuprof_piece *, uint64_t)) \
    _row(int, gpuprof_alloc, (void **, size_t, int, void *)) \
    _row(int, gpuprof_free, (void *)) \
    _row(int, gpuprof_empty_cache, (int))
/* clang-format on */

#define API_ROW(_result, _name, _params) static PROGRAM_UNUSED _result(*api_##_name) _params;
API_ROWS(API_ROW)
#undef API_ROW

/* False: the library or a function is missing. */
static PROGRAM_UNUSED int api_load(void)
{
    const char *path = getenv("GPUPROF_TEST_LIBRARY");
    void *library = path != NULL ? dlopen(path, RTLD_NOW) : dlopen("libgpuprof.so", RTLD_NOW | RTLD_NOLOAD);
    int whole = library != NULL;

#define API_ROW(_result, _name, _params)                                                                               \
    *(void **)&api_##_name = whole ? dlsym(library, #_name) : NULL;                                                    \
    whole = api_##_name != NULL;
    API_ROWS(API_ROW)
#undef API_ROW
    if (!whole)
        printf("no library: %s\n", dlerror());
    return whole;
}

static PROGRAM_UNUSED long long api_stat(int device, const char *name)
{
    int64_t value = -77;
    return api_gpuprof_memory_stat(device, name, &value) == 0 ? value : -1;
}

/* KiB: what these programs allocate are whole ones.  What is negative stays as it is: it says that
 * something is not known. */
static PROGRAM_UNUSED long long api_kib(int64_t bytes)
{
    return bytes < 0 ? (long long)bytes : (long long)bytes / 1024;
}

static PROGRAM_UNUSED void api_show(const char *what, int device)
{
    printf("%s: allocated %lld peak %lld, reserved %lld peak %lld\n", what,
           api_kib(api_gpuprof_memory_allocated(device)), api_kib(api_gpuprof_max_memory_allocated(device)),
           api_kib(api_gpuprof_memory_reserved(device)), api_kib(api_gpuprof_max_memory_reserved(device)));
}

#endif
