/* SPDX-License-Identifier: MIT
 * Kernel launches and host functions.  A kernel runs no code here: it takes virtual time and
 * touches the memory that its parameters point to, all of it, reading and writing.  Called through
 * the API and by graph nodes. */
#include "cuda/module.h"
#include "cuda/stream.h"

#include <stdlib.h>
#include <string.h>

#define SIM_PARAM_MAX 64

/* ---- parameters of PTX kernels ----------------------------------------------------------------------------------- */

/* Bytes of one declaration: ".param .align 8 .b8 name[16]", ".param .u64 .ptr .global name". */
static size_t sim_param_bytes(const char *at, const char *end)
{
    size_t element = 0, count = 1;
    const char *bracket;

    for (const char *dot = memchr(at, '.', (size_t)(end - at)); dot && !element;
         dot = memchr(dot + 1, '.', (size_t)(end - dot - 1))) {
        int bits = strchr("busf", dot[1]) ? atoi(dot + 2) : 0;

        if (bits >= 8 && bits <= 128 && bits % 8 == 0)
            element = (size_t)bits / 8;
    }
    bracket = memchr(at, '[', (size_t)(end - at));
    if (bracket)
        count = strtoul(bracket + 1, NULL, 0);
    return element * count;
}

static void sim_params_read(struct sim_function *f, const char *at)
{
    const char *close;

    f->param_count = 0;
    at += strspn(at, " \t\r\n");
    close = *at == '(' ? strchr(at, ')') : NULL;
    if (!close)
        return;
    for (at++; at < close && f->param_count < SIM_PARAM_MAX; at++) {
        const char *end = memchr(at, ',', (size_t)(close - at));
        size_t bytes = sim_param_bytes(at, end ? end : close);

        if (bytes && bytes <= UINT16_MAX)
            f->param_size[f->param_count++] = (uint16_t)bytes;
        at = end ? end : close;
    }
}

/* -1: an image whose parameters cannot be read. */
static void sim_params_look(struct sim_function *f)
{
    const char *image = f->module->image;
    size_t length = strlen(f->name);

    if (f->param_count != -2)
        return;
    f->param_count = -1;
    /* A compiled program passes arguments of many types: none may be taken for a pointer. */
    if (image && sim_image_fat(image))
        f->param_count = 0;
    if (!image || !sim_image_text(image))
        return;
    for (const char *at = strstr(image, ".entry"); at; at = strstr(at + 6, ".entry")) {
        const char *word = at + 6 + strspn(at + 6, " \t\r\n");

        if (!strncmp(word, f->name, length) && strchr(" \t\r\n(", word[length])) {
            sim_params_read(f, word + length);
            return;
        }
    }
}

static void sim_pointer_add(struct sim_kernel_pointers *out, const void *value)
{
    CUdeviceptr p;

    memcpy(&p, value, sizeof p);
    if (out->count < SIM_PARAM_MAX && (sim_memory_find(p) || sim_pool_covers(p)))
        out->at[out->count++] = p;
}

/* The buffer form: parameters packed at their natural alignment; without sizes every aligned word
 * may be a pointer. */
static CUresult sim_pointers_packed(const struct sim_function *f, void **extra, struct sim_kernel_pointers *out)
{
    const char *buffer = NULL;
    size_t size = 0, at = 0;

    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2)
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            size = *(size_t *)extra[1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    if (size && !buffer)
        return CUDA_ERROR_INVALID_VALUE;
    if (f->param_count < 0) {
        for (; at + 8 <= size; at += 8)
            sim_pointer_add(out, buffer + at);
        return CUDA_SUCCESS;
    }
    for (int i = 0; i < f->param_count; i++) {
        size_t bytes = f->param_size[i], align = bytes >= 8 ? 8 : bytes;

        at = sim_round_up(at, align);
        if (at + bytes > size)
            return CUDA_ERROR_INVALID_VALUE;
        if (bytes == 8)
            sim_pointer_add(out, buffer + at);
        at += bytes;
    }
    return CUDA_SUCCESS;
}

CUresult sim_kernel_pointers(CUfunction h, void **params, void **extra, struct sim_kernel_pointers *out)
{
    struct sim_function *f = sim_function_find(h);

    *out = (struct sim_kernel_pointers){0};
    if (!f)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_params_look(f);
    if (params && extra)
        return CUDA_ERROR_INVALID_VALUE;
    if (extra)
        return sim_pointers_packed(f, extra, out);
    if (!params)
        return f->param_count > 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    if (f->param_count < 0) { /* only the first can be relied upon to be there */
        if (params[0])
            sim_pointer_add(out, params[0]);
        return CUDA_SUCCESS;
    }
    for (int i = 0; i < f->param_count; i++) {
        if (!params[i])
            return CUDA_ERROR_INVALID_VALUE;
        if (f->param_size[i] == 8)
            sim_pointer_add(out, params[i]);
    }
    return CUDA_SUCCESS;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* 2 us: what an empty kernel takes on the device; 100 threads a ns: about 10^5 resident threads
 * that take 1 us each. */
#define SIM_KERNEL_NS      2000
#define SIM_THREADS_PER_NS 100

/* Kernels have no staging: an address that the launching context may not reach faults on a device.
 * That fault comes late and ends the context, so here it counts as a hazard. */
static bool sim_kernel_reaches(const struct sim_stream *s, struct sim_memory *m)
{
    if (m->access)
        return m->access(m, 0, m->size, s->device, false) == CUDA_SUCCESS;
    if (m->device == s->device || m->type == SIM_MEMORY_MANAGED || !sim_memory_on_device(m))
        return true;
    return s->context->peers >> m->device & 1;
}

void sim_kernel_run(struct sim_stream *s, const struct sim_kernel_pointers *p, uint64_t threads)
{
    sim_kernels_add();
    for (uint32_t i = 0; i < p->count; i++) {
        struct sim_memory *m = sim_memory_find(p->at[i]);

        if (m && !sim_kernel_reaches(s, m))
            sim_hazard_report(s->device, m->base, m->size, "kernel", "its device has no access to this memory");
        sim_access(s, m ? m->base : p->at[i], m ? m->size : 1, true, "kernel");
    }
    sim_stream_charge(s, SIM_KERNEL_NS + threads / SIM_THREADS_PER_NS);
}
