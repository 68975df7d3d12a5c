/* SPDX-License-Identifier: MIT
 * The graph interface of cuDNN: descriptors with attributes, from which a program builds a graph of
 * operations, asks for engines and makes plans.  Every graph has one engine, without knobs; one with fp32
 * convolutions has another before it, whose notes say that it computes in TF32.
 * Programs end the descriptors of a graph before they ask the plan for its workspace: each holds
 * those that it names. */
#include "cudnn.h"

#include <string.h>

/* Kinds of descriptors, attributes and types, as cudnn_backend.h numbers them. */
enum { FORWARD = 10, BACKWARD_FILTER = 11, BACKWARD_DATA = 12, PRODUCT = 19 };
enum {
    HEUR_GRAPH = 201,
    HEUR_RESULTS = 202,
    CONFIG_ENGINE = 300,
    CONFIG_WORKSPACE = 303,
    CONFIG_SHARED_MEMORY = 304,
    PLAN_CONFIG = 401,
    PLAN_WORKSPACE = 402,
    PLAN_JSON = 405,
    FORWARD_W = 703,
    FORWARD_X = 704,
    FORWARD_Y = 705,
    DATA_W = 709,
    DATA_DX = 710,
    DATA_DY = 711,
    FILTER_DW = 715,
    FILTER_X = 716,
    FILTER_DY = 717,
    GRAPH_OPERATIONS = 801,
    GRAPH_ENGINES = 802,
    TENSOR_TYPE = 901,
    TENSOR_SIZES = 902,
    TENSOR_STEPS = 903,
    PACK_POINTERS = 1001,
    ENGINE_GRAPH = 1300,
    ENGINE_INDEX = 1301,
    ENGINE_NOTES = 1303
};
enum {
    TYPE_BOOLEAN = 2,
    TYPE_ENUM = 1,
    TYPE_DESCRIPTOR = 15,
    TYPE_FLOAT = 4,
    TYPE_INT32 = 23,
    TYPE_CHAR = 24,
    TYPE_FRACTION = 26
};

static size_t element(int type)
{
    switch (type) {
    case TYPE_BOOLEAN:
    case TYPE_CHAR:
        return 1;
    case 0: /* handle, int64, double, pointer */
    case 3:
    case 5:
    case 6:
    case TYPE_DESCRIPTOR:
        return 8;
    case TYPE_FRACTION:
        return 16;
    default: /* float, int32 and the enums */
        return 4;
    }
}

EXPORT int cudnnBackendCreateDescriptor(int kind, struct standin_object **descriptor);
EXPORT int cudnnBackendCreateDescriptor(int kind, struct standin_object **descriptor)
{
    *descriptor = standin_new(kind);
    return *descriptor ? 0 : STANDIN_NO_MEMORY;
}

EXPORT int cudnnBackendDestroyDescriptor(word descriptor);
EXPORT int cudnnBackendDestroyDescriptor(word descriptor)
{
    standin_drop(standin_object(descriptor));
    return 0;
}

EXPORT int cudnnBackendInitialize(word descriptor);
EXPORT int cudnnBackendInitialize(word descriptor)
{
    (void)descriptor;
    return 0;
}
EXPORT int cudnnBackendFinalize(word descriptor) __attribute__((alias("cudnnBackendInitialize")));

EXPORT int cudnnBackendSetAttribute(word descriptor, int name, int type, int64_t count, const void *elements);
EXPORT int cudnnBackendSetAttribute(word descriptor, int name, int type, int64_t count, const void *elements)
{
    if (count < 0 || (count && !elements))
        return STANDIN_BAD_PARAM;
    bool done =
        standin_set(standin_object(descriptor), name, elements, (size_t)count * element(type), type == TYPE_DESCRIPTOR);
    return done ? 0 : STANDIN_NO_MEMORY;
}

/* ---- workspace ----------------------------------------------------------------------------------------------------- */

static struct standin_object *member(const struct standin_object *object, int name)
{
    size_t size;
    const word *at = standin_get(object, name, &size);
    return size >= sizeof *at ? standin_object(*at) : NULL;
}

static bool tensor_of(const struct standin_object *operation, int name, struct cudnn_tensor *tensor)
{
    const struct standin_object *object = member(operation, name);
    size_t bytes, dims;
    const void *type = standin_get(object, TENSOR_TYPE, &bytes);
    const int64_t *sizes = standin_get(object, TENSOR_SIZES, &dims);
    memset(tensor, 0, sizeof *tensor);
    if (bytes < sizeof(int) || dims > sizeof tensor->size)
        return false;
    memcpy(&tensor->type, type, sizeof tensor->type);
    tensor->dims = (int)(dims / sizeof *sizes);
    if (dims)
        memcpy(tensor->size, sizes, dims);
    const int64_t *steps = standin_get(object, TENSOR_STEPS, &bytes);
    if (!dims || bytes != dims)
        return false;
    memcpy(tensor->step, steps, bytes);
    return true;
}

/* The image, the filter and the result, by kind of operation. */
static const int operation_tensors[][3] = {
    {FORWARD_X, FORWARD_W, FORWARD_Y}, {FILTER_X, FILTER_DW, FILTER_DY}, {DATA_DX, DATA_W, DATA_DY}};

static size_t operation_workspace(const struct standin_object *operation, bool exact)
{
    int kind = standin_type(operation) - FORWARD;
    struct cudnn_tensor x, w, y;
    if (kind == PRODUCT - FORWARD) { /* as attention has: PyTorch took a block of 512 bytes on an H200 */
        standin_assumed("graphs with products of matrices: a workspace of 512 bytes");
        return 512;
    }
    if (kind < 0 || kind > BACKWARD_DATA - FORWARD) {
        standin_assumed("graphs other than convolutions: no workspace");
        return 0;
    }
    if (!tensor_of(operation, operation_tensors[kind][0], &x) ||
        !tensor_of(operation, operation_tensors[kind][1], &w) || !tensor_of(operation, operation_tensors[kind][2], &y))
        return 0;
    return cudnn_convolution_workspace((enum cudnn_direction)kind, &x, &w, &y, exact);
}

static int64_t config_workspace(const struct standin_object *config)
{
    const struct standin_object *engine = member(config, CONFIG_ENGINE), *graph = member(engine, ENGINE_GRAPH);
    bool exact = standin_number(engine, ENGINE_INDEX, 0) != 0;
    size_t size, most = 0;
    const word *operations = standin_get(graph, GRAPH_OPERATIONS, &size);
    for (size_t i = 0; i < size / sizeof *operations; i++) {
        size_t bytes = operation_workspace(standin_object(operations[i]), exact);
        most = bytes > most ? bytes : most;
    }
    return (int64_t)most;
}

/* ---- answers ------------------------------------------------------------------------------------------------------- */

/* The program makes the descriptors that are to be filled. */
static int fill_descriptors(const word *from, int64_t have, int64_t wanted, const word *to)
{
    for (int64_t i = 0; i < have && i < wanted; i++)
        if (!standin_copy(standin_object(to[i]), standin_object(from[i])))
            return STANDIN_NO_MEMORY;
    return 0;
}

static int engines_of(const struct standin_object *graph)
{
    size_t size;
    const word *operations = standin_get(graph, GRAPH_OPERATIONS, &size);
    for (size_t i = 0; i < size / sizeof *operations; i++) {
        const struct standin_object *operation = standin_object(operations[i]);
        int kind = standin_type(operation);
        struct cudnn_tensor x;
        if (kind == FORWARD || kind == BACKWARD_FILTER || kind == BACKWARD_DATA)
            return tensor_of(operation, operation_tensors[kind - FORWARD][0], &x) && x.type == 0 ? 2 : 1;
    }
    return 1;
}

static bool engine_put(struct standin_object *config, struct standin_object *graph, int index, bool tf32)
{
    static const int tensor_core = 0;
    struct standin_object *engine = standin_new(0);
    bool done = engine && standin_set(engine, ENGINE_GRAPH, &graph, sizeof graph, true) &&
                standin_set_number(engine, ENGINE_INDEX, index) &&
                (!tf32 || standin_set(engine, ENGINE_NOTES, &tensor_core, sizeof tensor_core, false)) &&
                standin_set(config, CONFIG_ENGINE, &engine, sizeof engine, true);
    standin_drop(engine);
    return done;
}

/* The count is of those that were written: PyTorch wants one, and reads as many as the count.  Where none is wanted,
 * it is of all. */
static int answer_engines(const struct standin_object *heuristic, int64_t wanted, int64_t *count, const word *to)
{
    struct standin_object *graph = member(heuristic, HEUR_GRAPH);
    int engines = engines_of(graph), given = 0;
    for (; to && given < engines && given < wanted; given++)
        if (!engine_put(standin_object(to[given]), graph, given, engines == 2 && given == 0))
            return STANDIN_NO_MEMORY;
    if (count)
        *count = to && wanted > 0 ? given : engines;
    return 0;
}

static int answer_number(int64_t value, int64_t wanted, int64_t *count, void *to)
{
    if (count)
        *count = 1;
    if (wanted > 0 && to)
        memcpy(to, &value, sizeof value);
    return 0;
}

EXPORT int cudnnBackendGetAttribute(word descriptor, int name, int type, int64_t wanted, int64_t *count,
                                    void *elements);
EXPORT int cudnnBackendGetAttribute(word descriptor, int name, int type, int64_t wanted, int64_t *count, void *elements)
{
    const struct standin_object *object = standin_object(descriptor);
    switch (name) {
    case HEUR_RESULTS:
        return answer_engines(object, wanted, count, elements);
    case GRAPH_ENGINES:
        return answer_number(engines_of(object), wanted, count, elements);
    case PLAN_WORKSPACE:
        return answer_number(config_workspace(member(object, PLAN_CONFIG)), wanted, count, elements);
    case CONFIG_WORKSPACE:
        return answer_number(config_workspace(object), wanted, count, elements);
    case CONFIG_SHARED_MEMORY: /* an int */
        if (wanted > 0 && elements)
            memset(elements, 0, sizeof(int));
        return answer_number(0, 0, count, NULL);
    case PLAN_JSON:
        standin_unsupported("cudnnBackendGetAttribute of a plan's JSON");
        return STANDIN_NOT_SUPPORTED;
    }
    size_t size;
    const void *value = standin_get(object, name, &size);
    int64_t have = (int64_t)(size / element(type));
    if (count)
        *count = have;
    if (!value || !elements || wanted <= 0)
        return 0;
    if (type == TYPE_DESCRIPTOR)
        return fill_descriptors(value, have, wanted, elements);
    memcpy(elements, value, (size_t)(have < wanted ? have : wanted) * element(type));
    return 0;
}

/* As a launch with these pointers among its parameters. */
EXPORT int cudnnBackendExecute(word handle, word plan, word pack);
EXPORT int cudnnBackendExecute(word handle, word plan, word pack)
{
    size_t size;
    const word *pointers = standin_get(standin_object(pack), PACK_POINTERS, &size);
    (void)handle;
    (void)plan;
    for (size_t i = 0; i < size / sizeof *pointers; i++)
        standin_written(pointers[i], 0);
    return 0;
}

EXPORT int cudnnGetExecutionPlanWorkspaceSize(word handle, word plan, word pack, size_t *bytes);
EXPORT int cudnnGetExecutionPlanWorkspaceSize(word handle, word plan, word pack, size_t *bytes)
{
    (void)handle;
    (void)pack;
    *bytes = (size_t)config_workspace(member(standin_object(plan), PLAN_CONFIG));
    return 0;
}
