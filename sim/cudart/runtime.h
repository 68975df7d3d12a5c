/* SPDX-License-Identifier: MIT
 * The simulated runtime's own header: table of driver pointers, per-call bracket, the macros that
 * every entry point is written with.  Included by all of sim/cudart; nothing outside of it may
 * use it.
 *
 * One call runs: load the driver and cuInit (once per process, before the tool hears of anything,
 * as the real runtime does: the injected tool subscribes inside that cuInit) -> RUNTIME ENTER ->
 * primary context of the thread's device, made current -> body -> RUNTIME EXIT.  So context
 * creation nests inside the first runtime call that needs a context.
 */
#ifndef SIM_CUDART_RUNTIME_H
#define SIM_CUDART_RUNTIME_H

/* Names as they are exported: no _v2 mapping of the driver's, no _ptsz mapping of the runtime's. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "cudart/driver_table.h"
#include "tool.h"

#define RT_EXPORT __attribute__((visibility("default")))

/* All driver functions that the runtime calls.  There are two tables: [0] with the legacy default
 * stream, [1] with the per-thread default stream where a function has such a twin, else the same
 * pointer.  A function that the driver lacks points at one that answers "call requires newer
 * driver". */
struct rt_driver {
#define RT_POINTER(name, version, types)        CUresult(*name) types;
#define RT_POINTER2(name, version, twin, types) CUresult(*name) types;
    RT_DRIVER_FUNCTIONS(RT_POINTER, RT_POINTER2)
#undef RT_POINTER
#undef RT_POINTER2
};
extern struct rt_driver rt_drivers[2];

typedef CUresult (*rt_getproc_fn)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

/* What an entry point needs before its body runs. */
enum rt_need {
    RT_NOTHING = 0, /* answers without a driver too, and reports to the tool only if one is there already */
    RT_INIT = 1,    /* cuInit done */
    RT_CONTEXT = 2, /* and a context current: the thread's own or the primary one of its device */
    RT_QUIET = 4    /* flag: the result says something about another call and is not kept as the last error */
};

struct rt_call {
    struct sim_tool_frame frame;
    const struct sim_tool_table *tools; /* NULL: no driver, so no tool */
    unsigned need;
};

/* driver.c */
cudaError_t rt_load(void); /* only the library */
cudaError_t rt_init(void); /* and cuInit */
const struct sim_tool_table *rt_tools(void);
rt_getproc_fn rt_getproc(void);
cudaError_t rt_begin(struct rt_call *call, unsigned need, uint32_t cbid, const char *name, const void *params);
cudaError_t rt_end(struct rt_call *call, cudaError_t status);
cudaError_t rt_last_error(bool clear);

/* context.c: device ordinal and context of the calling thread. */
cudaError_t rt_context(void);
cudaError_t rt_device_select(int device);
cudaError_t rt_device_current(int *device);
cudaError_t rt_device_reset(void);
/* The primary context of a device, retained once for the whole process; used for peers. */
cudaError_t rt_device_context(int device, CUcontext *context);
CUcontext rt_context_current(void);

/* error.c, array.c, launch.c */
cudaError_t rt_error_from(CUresult result);
cudaError_t rt_copy3d(const struct cudaMemcpy3DParms *from, CUDA_MEMCPY3D *to);
cudaError_t rt_kernel_function(const void *func, CUfunction *function);

bool rt_kernel_known(CUkernel kernel);
cudaError_t rt_kernel_add(CUkernel kernel, CUlibrary library);
void rt_kernel_forget(CUlibrary library);
cudaError_t rt_launch_config(const cudaLaunchConfig_t *from, CUlaunchConfig *to);

/* graph.c, copy.c */
cudaError_t rt_kernel_node(const struct cudaKernelNodeParams *from, CUDA_KERNEL_NODE_PARAMS *to);
cudaError_t rt_set_node(const struct cudaMemsetParams *from, CUDA_MEMSET_NODE_PARAMS *to);
cudaError_t rt_memcpy(const struct rt_driver *D, void *dst, const void *src, size_t count, enum cudaMemcpyKind kind);
cudaError_t rt_memcpy_async(const struct rt_driver *D, void *dst, const void *src, size_t count,
                            enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t rt_format(const struct cudaChannelFormatDesc *desc, CUarray_format *format, unsigned *channels);
void rt_channel_desc(CUarray_format format, unsigned channels, struct cudaChannelFormatDesc *to);

/* register.c: what a CUDA compiler put into the program, by the address of its host side. */
cudaError_t rt_stub_function(const void *host, CUfunction *function);
cudaError_t rt_symbol(const void *host, CUdeviceptr *address, size_t *size);

/* version.c: 1000 x major + 10 x minor */
extern const int rt_version;

static inline CUdeviceptr rt_device_pointer(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

static inline void *rt_pointer(CUdeviceptr pointer)
{
    return (void *)(uintptr_t)pointer;
}

/* A pointer that a driver call has put into `from`, to the program if the call succeeded.  By
 * address, since the call stands among the arguments too and C leaves their order open. */
static inline cudaError_t rt_store(CUresult result, const CUdeviceptr *from, void **to)
{
    if (!result && to)
        *to = rt_pointer(*from);
    return rt_error_from(result);
}

/* The runtime's array handles are the driver's under another type; const is only a promise of the
 * program. */
static inline CUarray rt_array(cudaArray_const_t array)
{
    return (CUarray)(uintptr_t)array;
}

/* RT_API(need, cbid, name, type, argument, ...) { body } defines one entry point: its parameter
 * struct in the documented order, the exported function, and `body`, which sees the arguments and
 * `D`, the table of driver pointers. RT_TWINS(need, cbid, cbid of the twin, suffix, name, ...)
 * defines it and its per-thread twin over the same body. */
#define RT_EACH2(M, S, t, a)       M(t, a)
#define RT_EACH4(M, S, t, a, ...)  M(t, a) S() RT_EACH2(M, S, __VA_ARGS__)
#define RT_EACH6(M, S, t, a, ...)  M(t, a) S() RT_EACH4(M, S, __VA_ARGS__)
#define RT_EACH8(M, S, t, a, ...)  M(t, a) S() RT_EACH6(M, S, __VA_ARGS__)
#define RT_EACH10(M, S, t, a, ...) M(t, a) S() RT_EACH8(M, S, __VA_ARGS__)
#define RT_EACH12(M, S, t, a, ...) M(t, a) S() RT_EACH10(M, S, __VA_ARGS__)
#define RT_EACH14(M, S, t, a, ...) M(t, a) S() RT_EACH12(M, S, __VA_ARGS__)
#define RT_EACH16(M, S, t, a, ...) M(t, a) S() RT_EACH14(M, S, __VA_ARGS__)
#define RT_EACH18(M, S, t, a, ...) M(t, a) S() RT_EACH16(M, S, __VA_ARGS__)

#define RT_COUNT_(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, count, ...) count

#define RT_COUNT(...) RT_COUNT_(__VA_ARGS__, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)

#define RT_JOIN_(a, b) a##b
#define RT_JOIN(a, b)  RT_JOIN_(a, b)
#define RT_COMMA()     ,
#define RT_BLANK()
#define RT_FIELD(t, a)    t a;
#define RT_ARGUMENT(t, a) t a
#define RT_NAME(t, a)     a

#define RT_EACH(M, S, ...) RT_JOIN(RT_EACH, RT_COUNT(__VA_ARGS__))(M, S, __VA_ARGS__)

#define RT_ENTRY(need, cbid, name, export, twin, ...)                                                                  \
    RT_EXPORT cudaError_t export(RT_EACH(RT_ARGUMENT, RT_COMMA, __VA_ARGS__));                                         \
    RT_EXPORT cudaError_t export(RT_EACH(RT_ARGUMENT, RT_COMMA, __VA_ARGS__))                                          \
    {                                                                                                                  \
        struct name##_params params = {RT_EACH(RT_NAME, RT_COMMA, __VA_ARGS__)};                                       \
        struct rt_call call;                                                                                           \
        cudaError_t status = rt_begin(&call, need, cbid, #export, &params);                                            \
                                                                                                                       \
        if (status == cudaSuccess)                                                                                     \
            status = body_##name(&rt_drivers[twin], RT_EACH(RT_NAME, RT_COMMA, __VA_ARGS__));                          \
        return rt_end(&call, status);                                                                                  \
    }

#define RT_BODY(name, ...)                                                                                             \
    static cudaError_t body_##name(const struct rt_driver *D __attribute__((unused)),                                  \
                                   RT_EACH(RT_ARGUMENT, RT_COMMA, __VA_ARGS__))

#define RT_API(need, cbid, name, ...)                                                                                  \
    struct name##_params {                                                                                             \
        RT_EACH(RT_FIELD, RT_BLANK, __VA_ARGS__)                                                                       \
    };                                                                                                                 \
    RT_BODY(name, __VA_ARGS__);                                                                                        \
    RT_ENTRY(need, cbid, name, name, 0, __VA_ARGS__)                                                                   \
    RT_BODY(name, __VA_ARGS__)

#define RT_TWINS(need, cbid, cbid2, suffix, name, ...)                                                                 \
    struct name##_params {                                                                                             \
        RT_EACH(RT_FIELD, RT_BLANK, __VA_ARGS__)                                                                       \
    };                                                                                                                 \
    RT_BODY(name, __VA_ARGS__);                                                                                        \
    RT_ENTRY(need, cbid, name, name, 0, __VA_ARGS__)                                                                   \
    RT_ENTRY(need, cbid2, name, name##suffix, 1, __VA_ARGS__)                                                          \
    RT_BODY(name, __VA_ARGS__)

/* A call without arguments has no parameter struct. */
#define RT_API0(need, cbid, name)                                                                                      \
    static cudaError_t body_##name(const struct rt_driver *D __attribute__((unused)));                                 \
    RT_EXPORT cudaError_t name(void)                                                                                   \
    {                                                                                                                  \
        struct rt_call call;                                                                                           \
        cudaError_t status = rt_begin(&call, need, cbid, #name, NULL);                                                 \
                                                                                                                       \
        if (status == cudaSuccess)                                                                                     \
            status = body_##name(&rt_drivers[0]);                                                                      \
        return rt_end(&call, status);                                                                                  \
    }                                                                                                                  \
    static cudaError_t body_##name(const struct rt_driver *D __attribute__((unused)))

#endif
