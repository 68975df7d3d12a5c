/* SPDX-License-Identifier: MIT
 * The linker: cuLinkCreate to cuLinkDestroy.  Nothing is compiled: what cuLinkComplete returns is an
 * image with the kernels of all inputs, for cuModuleLoadData.  PTX stays text, a single binary stays
 * as it is, and a mixture becomes a fat binary, of which the names cannot be seen. */
#define _GNU_SOURCE
#include "cuda/module.h"

#include <stdlib.h>
#include <string.h>

struct sim_link {
    struct sim_link *next;
    char *bytes; /* all inputs; PTX without its ending zero */
    size_t size;
    unsigned inputs, binaries; /* binaries: inputs that are not PTX */
    char *image;               /* what cuLinkComplete returned */
};
static struct sim_link *sim_links;

static struct sim_link *sim_link_find(CUlinkState handle)
{
    for (struct sim_link *at = sim_links; at; at = at->next)
        if ((CUlinkState)at == handle)
            return at;
    return NULL;
}

static CUresult sim_link_new(unsigned count, const CUjit_option *options, void **values, CUlinkState *out)
{
    struct sim_context *context;
    CUresult result = sim_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!out || (count && (!options || !values)))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_link *link = calloc(1, sizeof *link);
    if (!link)
        return CUDA_ERROR_OUT_OF_MEMORY;
    link->next = sim_links;
    sim_links = link;
    *out = (CUlinkState)link;
    return CUDA_SUCCESS;
}

static CUresult sim_link_bytes(struct sim_link *link, CUjitInputType type, const char *data, size_t size)
{
    if (type == CU_JIT_INPUT_PTX)
        size = strnlen(data, size);
    char *grown = realloc(link->bytes, link->size + size + 2);
    if (!grown)
        return CUDA_ERROR_OUT_OF_MEMORY;
    link->bytes = grown;
    memcpy(grown + link->size, data, size);
    link->size += size;
    if (type == CU_JIT_INPUT_PTX)
        grown[link->size++] = '\n';
    grown[link->size] = 0;
    link->inputs++;
    link->binaries += type != CU_JIT_INPUT_PTX;
    return CUDA_SUCCESS;
}

static CUresult sim_link_add(CUlinkState state, CUjitInputType type, const char *data, size_t size)
{
    struct sim_link *link = sim_link_find(state);
    if (!link || link->image)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!data || !size || (unsigned)type > CU_JIT_INPUT_NVVM)
        return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_JIT_INPUT_NVVM)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (type == CU_JIT_INPUT_PTX && !memmem(data, strnlen(data, size), ".version", 8))
        return CUDA_ERROR_INVALID_PTX;
    return sim_link_bytes(link, type, data, size);
}

static CUresult sim_link_file(CUlinkState state, CUjitInputType type, const char *path)
{
    size_t size;
    if (!path)
        return CUDA_ERROR_INVALID_VALUE;
    char *data = sim_image_file(path, &size);
    if (!data)
        return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult result = sim_link_add(state, type, data, size);
    free(data);
    return result;
}

SIM_API4(362, 5050, cuLinkCreate, unsigned int, numOptions, CUjit_option *, options, void **, optionValues,
         CUlinkState *, stateOut)
{
    return sim_link_new(numOptions, options, optionValues, stateOut);
}

SIM_API4(381, 6050, cuLinkCreate_v2, unsigned int, numOptions, CUjit_option *, options, void **, optionValues,
         CUlinkState *, stateOut)
{
    return sim_link_new(numOptions, options, optionValues, stateOut);
}

SIM_API8(363, 5050, cuLinkAddData, CUlinkState, state, CUjitInputType, type, void *, data, size_t, size, const char *,
         name, unsigned int, numOptions, CUjit_option *, options, void **, optionValues)
{
    (void)name, (void)numOptions, (void)options, (void)optionValues;
    return sim_link_add(state, type, data, size);
}

SIM_API8(382, 6050, cuLinkAddData_v2, CUlinkState, state, CUjitInputType, type, void *, data, size_t, size,
         const char *, name, unsigned int, numOptions, CUjit_option *, options, void **, optionValues)
{
    (void)name, (void)numOptions, (void)options, (void)optionValues;
    return sim_link_add(state, type, data, size);
}

SIM_API6(364, 5050, cuLinkAddFile, CUlinkState, state, CUjitInputType, type, const char *, path, unsigned int,
         numOptions, CUjit_option *, options, void **, optionValues)
{
    (void)numOptions, (void)options, (void)optionValues;
    return sim_link_file(state, type, path);
}

SIM_API6(383, 6050, cuLinkAddFile_v2, CUlinkState, state, CUjitInputType, type, const char *, path, unsigned int,
         numOptions, CUjit_option *, options, void **, optionValues)
{
    (void)numOptions, (void)options, (void)optionValues;
    return sim_link_file(state, type, path);
}

SIM_API3(365, 5050, cuLinkComplete, CUlinkState, state, void **, cubinOut, size_t *, sizeOut)
{
    struct sim_link *link = sim_link_find(state);
    size_t header, size;
    if (!link)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!cubinOut || !link->inputs)
        return CUDA_ERROR_INVALID_VALUE;
    header = link->binaries && link->inputs > 1 ? SIM_FATBIN_HEADER : 0;
    size = header + link->size + !link->binaries; /* text with its zero */
    if (!link->image) {
        link->image = calloc(1, size + 1);
        if (!link->image)
            return CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(link->image + header, link->bytes, link->size);
        if (header)
            sim_image_fat_header(link->image, link->size);
    }
    *cubinOut = link->image;
    if (sizeOut)
        *sizeOut = size;
    return CUDA_SUCCESS;
}

SIM_API1(366, 5050, cuLinkDestroy, CUlinkState, state)
{
    struct sim_link *link = sim_link_find(state), **at = &sim_links;
    if (!link)
        return CUDA_ERROR_INVALID_HANDLE;
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    free(link->bytes);
    free(link->image);
    free(link);
    return CUDA_SUCCESS;
}
