/* SPDX-License-Identifier: MIT
 *
 * nvtxmem.h: the part of NVTX's memory extension with which a sub-allocator describes its heaps,
 * for builds without NVIDIA's header. Names, layouts and numbers are those of nvtx3/nvToolsExtMem.h,
 * so a program needs no change to use that one. Without a tool the functions do nothing.
 */
#ifndef GP_EXAMPLES_NVTXMEM_H
#define GP_EXAMPLES_NVTXMEM_H

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define NVTX_EXT_COMPATID_MEM                  0x0102
#define NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR 1
#define NVTX_MEM_TYPE_VIRTUAL_ADDRESS          1
#define NVTX_MEM_REGION_REF_TYPE_POINTER       1
#define NVTX_MEM_REGION_REF_TYPE_HANDLE        2
#define NVTX_MEM_HEAP_HANDLE_NO_TOOL           ((nvtxMemHeapHandle_t)(intptr_t)-1)

typedef void *nvtxDomainHandle_t;
typedef struct nvtxMemHeap_v1 *nvtxMemHeapHandle_t;
typedef struct nvtxMemRegion_v1 *nvtxMemRegionHandle_t;

typedef struct nvtxMemVirtualRangeDesc_v1 {
    size_t size;
    const void *ptr;
} nvtxMemVirtualRangeDesc_t;

typedef struct nvtxMemHeapDesc_v1 {
    uint16_t extCompatID, structSize;
    uint32_t reserved0, usage, type;
    size_t typeSpecificDescSize;
    const void *typeSpecificDesc;
    uint32_t category, messageType;
    const void *message;
} nvtxMemHeapDesc_t;

typedef struct nvtxMemRegionsRegisterBatch_v1 {
    uint16_t extCompatID, structSize;
    uint32_t regionType;
    nvtxMemHeapHandle_t heap;
    size_t regionCount, regionDescElementSize;
    const void *regionDescElements;
    nvtxMemRegionHandle_t *regionHandleElementsOut;
} nvtxMemRegionsRegisterBatch_t;

typedef struct nvtxMemRegionsResizeBatch_v1 {
    uint16_t extCompatID, structSize;
    uint32_t regionType;
    size_t regionDescCount, regionDescElementSize;
    const void *regionDescElements;
} nvtxMemRegionsResizeBatch_t;

typedef union nvtxMemRegionRef_t {
    const void *pointer;
    nvtxMemRegionHandle_t handle;
} nvtxMemRegionRef_t;

typedef struct nvtxMemRegionsUnregisterBatch_v1 {
    uint16_t extCompatID, structSize;
    uint32_t refType;
    size_t refCount, refElementSize;
    const nvtxMemRegionRef_t *refElements;
} nvtxMemRegionsUnregisterBatch_t;

/* ---- what the tool sees ------------------------------------------------------------------------- */

typedef struct nvtxExtModuleSegment_t {
    size_t segmentId, slotCount;
    intptr_t *functionSlots;
} nvtxExtModuleSegment_t;

typedef struct nvtxExtModuleInfo_t {
    uint16_t nvtxVer, structSize, moduleId, compatId;
    size_t segmentsCount;
    nvtxExtModuleSegment_t *segments;
    void *getExportFunction;
    const void *extInfo;
} nvtxExtModuleInfo_t;

enum { NVTXMEM_SLOTS = 17 };
static intptr_t nvtxmem_slots[NVTXMEM_SLOTS + 1];
static pthread_once_t nvtxmem_once = PTHREAD_ONCE_INIT;

static void nvtxmem_load(void)
{
    static nvtxExtModuleSegment_t segment = {0, NVTXMEM_SLOTS, nvtxmem_slots};
    static nvtxExtModuleInfo_t module = {3, sizeof(module), 1, NVTX_EXT_COMPATID_MEM, 1, &segment, NULL, NULL};
    const char *path = getenv("NVTX_INJECTION64_PATH");
    int (*start)(nvtxExtModuleInfo_t *) = NULL;
    void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
    if (library)
        *(void **)&start = dlsym(library, "InitializeInjectionNvtxExtension");
    if (start && !start(&module))
        for (int i = 0; i < NVTXMEM_SLOTS; i++)
            nvtxmem_slots[i] = 0;
}

static inline intptr_t nvtxmem_slot(int number)
{
    pthread_once(&nvtxmem_once, nvtxmem_load);
    return nvtxmem_slots[number];
}

static inline nvtxMemHeapHandle_t nvtxMemHeapRegister(nvtxDomainHandle_t domain, const nvtxMemHeapDesc_t *desc)
{
    intptr_t slot = nvtxmem_slot(1);
    return slot ? ((nvtxMemHeapHandle_t(*)(nvtxDomainHandle_t, const nvtxMemHeapDesc_t *))slot)(domain, desc)
                : NVTX_MEM_HEAP_HANDLE_NO_TOOL;
}

#define NVTXMEM_VOID(_number, _name, _type)                                                                            \
    static inline void _name(nvtxDomainHandle_t domain, _type argument)                                                \
    {                                                                                                                  \
        intptr_t slot = nvtxmem_slot(_number);                                                                         \
        if (slot)                                                                                                      \
            ((void (*)(nvtxDomainHandle_t, _type))slot)(domain, argument);                                             \
    }
NVTXMEM_VOID(2, nvtxMemHeapUnregister, nvtxMemHeapHandle_t)
NVTXMEM_VOID(3, nvtxMemHeapReset, nvtxMemHeapHandle_t)
NVTXMEM_VOID(4, nvtxMemRegionsRegister, const nvtxMemRegionsRegisterBatch_t *)
NVTXMEM_VOID(5, nvtxMemRegionsResize, const nvtxMemRegionsResizeBatch_t *)
NVTXMEM_VOID(6, nvtxMemRegionsUnregister, const nvtxMemRegionsUnregisterBatch_t *)

#endif
