/* SPDX-License-Identifier: MIT
 * Modules: a copy of the image in one context, its kernels and its variables. Their bytes count in
 * cuMemGetInfo and in no kind of the ledger, since the driver does not report them. */
#include "module.h"
#include "context.h"
#include "memory.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>

const struct sim_variable *sim_library_declared(const struct sim_library *library, size_t index)
{
    return library && index < library->declared_count ? &library->declared[index] : NULL;
}

/* Code is uploaded in 64 KiB steps here; the step of a device is not documented. */
#define SIM_CODE_STEP (64 * SIM_KIB)

/* A variable's record is found by name through this. */
struct sim_symbol {
    struct sim_symbol *next;
    struct sim_memory *memory;
    char *name;
    bool managed;
};

static uint32_t sim_module_id;

struct sim_module *sim_module_find(CUmodule handle)
{
    for (uint32_t uid = 1; handle && uid <= sim_context_newest(); uid++) {
        struct sim_context *context = sim_context_by_uid(uid);
        for (struct sim_module *at = context ? context->modules : NULL; at; at = at->next)
            if ((CUmodule)at == handle)
                return at;
    }
    return NULL;
}

static void sim_symbols_free(struct sim_module *module)
{
    while (module->symbols) {
        struct sim_symbol *symbol = module->symbols;
        module->symbols = symbol->next;
        struct sim_memory bytes = *symbol->memory;
        sim_memory_remove(symbol->memory);
        sim_bytes_give(&bytes, bytes.size);
        free(symbol->memory);
        free(symbol->name);
        free(symbol);
    }
}

static CUresult sim_symbol_new(struct sim_module *module, const struct sim_variable *variable)
{
    struct sim_symbol *symbol = calloc(1, sizeof *symbol);
    struct sim_memory *memory = calloc(1, sizeof *memory);
    char *name = strdup(variable->name);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (symbol && memory && name) {
        memory->size = variable->size;
        memory->type = SIM_MEMORY_MODULE;
        memory->device = module->device;
        result = sim_bytes_take(memory, memory->size, 4096, sim_round_up(memory->size, 4096));
    }
    if (result != CUDA_SUCCESS) {
        free(symbol);
        free(memory);
        free(name);
        return result;
    }
    *symbol = (struct sim_symbol){module->symbols, memory, name, variable->managed};
    module->symbols = symbol;
    sim_memory_insert(memory, NULL); /* the module owns it: it goes before the context's own list is freed */
    return CUDA_SUCCESS;
}

static void sim_module_free(struct sim_module *module)
{
    sim_symbols_free(module);
    while (module->functions) {
        struct sim_function *function = module->functions;
        module->functions = function->next;
        free(function->name);
        free(function->old);
        free(function);
    }
    if (module->footprint)
        sim_device_give(module->device, module->footprint);
    sim_layout_free(module);
    free(module->copy);
    free(module);
}

static CUresult sim_module_fill(struct sim_module *module, struct sim_context *context, const char *image, size_t size,
                                const struct sim_library *library)
{
    module->image = image;
    if (!library) {
        module->copy = calloc(1, size + 1);
        if (!module->copy)
            return CUDA_ERROR_OUT_OF_MEMORY;
        module->image = memcpy(module->copy, image, size);
    }
    module->size = size;
    module->device = context->device;
    module->context_uid = context->uid;
    uint64_t footprint = sim_round_up(size, SIM_CODE_STEP);
    CUresult result = sim_device_take(module->device, footprint);
    if (result == CUDA_SUCCESS)
        module->footprint = footprint;
    struct sim_variable variable;
    size_t at = 0;
    while (result == CUDA_SUCCESS && sim_image_variable(module->image, size, &at, &variable))
        result = sim_symbol_new(module, &variable);
    const struct sim_variable *declared;
    for (size_t i = 0; result == CUDA_SUCCESS && (declared = sim_library_declared(library, i)); i++)
        if (sim_module_variable(module, declared->name, declared->managed, NULL, NULL) != CUDA_SUCCESS)
            result = sim_symbol_new(module, declared);
    return result;
}

static void sim_module_event(const struct sim_module *module, struct sim_context *context, uint32_t cbid)
{
    struct sim_tool_module payload = {module->id, module->size, module->image};
    sim_tool_event(SIM_TOOL_RESOURCE, cbid, context, NULL, &payload);
}

CUresult sim_module_load(const char *image, size_t size, struct sim_library *library, struct sim_module **out)
{
    struct sim_context *context;
    /* Without the capture rules of allocations: a first launch inside a capture loads its code
     * lazily. */
    CUresult result = sim_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    context = sim_context_owner(context);
    struct sim_module *module = calloc(1, sizeof *module);
    if (!module)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = sim_module_fill(module, context, image, size, library);
    if (result != CUDA_SUCCESS) {
        sim_module_free(module);
        return result;
    }
    module->id = ++sim_module_id;
    module->library = library;
    module->next = context->modules;
    context->modules = module;
    *out = module;
    sim_module_event(module, context, SIM_TOOL_MODULE_LOADED);
    return CUDA_SUCCESS;
}

void sim_module_end(struct sim_module *module)
{
    struct sim_context *context = sim_context_by_uid(module->context_uid);
    struct sim_module **at = &context->modules;
    while (*at != module)
        at = &(*at)->next;
    *at = module->next; /* unlinked first: no thread finds it while the event runs without the lock */
    sim_module_event(module, context, SIM_TOOL_MODULE_UNLOAD_STARTING);
    sim_module_free(module);
}

void sim_modules_end(struct sim_context *context)
{
    while (context->modules)
        sim_module_end(context->modules);
}

/* Programs choose among their kernels by these two: CUB by the first, for instance. */
static void sim_function_generation(const struct sim_module *module, struct sim_function *function)
{
    const int capability = sim_spec.gpu->capability;
    struct sim_generation generation = {capability, capability, false};
    if (sim_image_text(module->image))
        generation.ptx = sim_text_target(module->image, capability);
    else if (sim_image_fat(module->image))
        generation = sim_fat_generation(module->image, module->size, capability);
    /* A real driver refuses the kernel.  What memory the program would need is worth knowing all the same. */
    if (generation.lacking)
        sim_report("libcuda.so.1", "assumed",
                   "code for compute capability %d.%d, which the program lacks: a real GPU refuses to run it "
                   "(CUDA_ERROR_NO_BINARY_FOR_GPU)",
                   capability / 10, capability % 10);
    function->attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION] = generation.ptx;
    function->attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = generation.binary;
}

uint32_t sim_function_stack(struct sim_function *function)
{
    const struct sim_module *module = function->module;
    if (function->stack < 0)
        function->stack = (int)(sim_image_text(module->image) ? sim_text_stack(module->image, function->name)
                                                              : sim_layout_stack_of(function->module, function->name));
    return (uint32_t)function->stack;
}

CUresult sim_module_function(struct sim_module *module, const char *name, struct sim_function **out)
{
    for (struct sim_function *at = module->functions; at; at = at->next)
        if (!strcmp(at->name, name)) {
            *out = at;
            return CUDA_SUCCESS;
        }
    if (!sim_image_kernel(module->image, module->size, name))
        return CUDA_ERROR_NOT_FOUND;
    struct sim_function *function = calloc(1, sizeof *function);
    char *copy = strdup(name);
    if (!function || !copy) {
        free(function);
        free(copy);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *function = (struct sim_function){
        .next = module->functions, .module = module, .name = copy, .param_count = -2, .given_count = -2, .stack = -1};
    function->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
    function->attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = 32;
    sim_function_generation(module, function);
    function->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 49152;
    module->functions = function;
    *out = function;
    return CUDA_SUCCESS;
}

CUresult sim_module_variable(struct sim_module *module, const char *name, bool managed, CUdeviceptr *address,
                             size_t *size)
{
    for (const struct sim_symbol *at = module->symbols; at; at = at->next)
        if (at->managed == managed && !strcmp(at->name, name)) {
            if (address)
                *address = at->memory->base;
            if (size)
                *size = at->memory->size;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}
