/* SPDX-License-Identifier: MIT
 * libcudnn.so.8 and .9: descriptors that answer as they were set, and sizes of workspaces by a rule. */
#include "cudnn.h"

#include <string.h>

enum { STREAM = 1, TENSOR, PAD, STRIDE, DILATION, MODE, TYPE, MATH, GROUPS, REORDER, FORMAT };

#include "cudnn.def"

/* cuDNN 9: seen on capability 9.0 with 132 multiprocessors. */
EXPORT int cudnnCreate(struct standin_object **handle);
EXPORT int cudnnCreate(struct standin_object **handle)
{
    enum { EACH = 192 };
    struct standin_object *object = standin_new(0);
    bool done =
        object && (standin_major() < 9 || (standin_take(object, (size_t)standin_multiprocessors() * EACH, false) &&
                                           standin_take(object, 4, false) && standin_take(object, 4, true)));
    if (!done) {
        standin_drop(object);
        return STANDIN_NO_MEMORY;
    }
    *handle = object;
    return 0;
}

S(cudnnSetStream, STREAM, 2)
G(cudnnGetStream, STREAM, 2, word, 0)

/* ---- tensors and filters ----------------------------------------------------------------------------------------- */

/* Steps of a format: 0 the last dimension is dense, 1 the second one is. */
static void tensor_steps(struct cudnn_tensor *tensor, int format)
{
    int64_t step = 1;
    if (format == 1 && tensor->dims > 2) {
        tensor->step[1] = step;
        step *= tensor->size[1];
    }
    for (int i = tensor->dims - 1; i >= 0; i--) {
        if (format == 1 && i == 1 && tensor->dims > 2)
            continue;
        tensor->step[i] = step;
        step *= tensor->size[i];
    }
}

static int tensor_keep(word descriptor, const struct cudnn_tensor *tensor)
{
    return standin_set(standin_object(descriptor), TENSOR, tensor, sizeof *tensor, false) ? 0 : STANDIN_NO_MEMORY;
}

static int tensor_set(word descriptor, int type, int format, int dims, const int *size, const int *step)
{
    struct cudnn_tensor tensor = {.type = type, .dims = dims};
    if (dims < 0 || dims > CUDNN_DIMS)
        return STANDIN_BAD_PARAM;
    for (int i = 0; i < dims; i++) {
        tensor.size[i] = size[i];
        tensor.step[i] = step ? step[i] : 0;
    }
    if (!step)
        tensor_steps(&tensor, format);
    standin_set_number(standin_object(descriptor), FORMAT, format);
    return tensor_keep(descriptor, &tensor);
}

int cudnn_tensor_set(word descriptor, int type, const int size[3])
{
    return tensor_set(descriptor, type, 0, 3, size, NULL);
}

static struct cudnn_tensor tensor_get(word descriptor)
{
    struct cudnn_tensor tensor = {0};
    size_t size;
    const void *bytes = standin_get(standin_object(descriptor), TENSOR, &size);
    if (size == sizeof tensor)
        memcpy(&tensor, bytes, size);
    return tensor;
}

EXPORT int cudnnSetTensorNdDescriptor(word tensor, int type, int dims, const int *size, const int *step);
EXPORT int cudnnSetTensorNdDescriptor(word tensor, int type, int dims, const int *size, const int *step)
{
    return tensor_set(tensor, type, 0, dims, size, step);
}

EXPORT int cudnnSetTensorNdDescriptorEx(word tensor, int format, int type, int dims, const int *size);
EXPORT int cudnnSetTensorNdDescriptorEx(word tensor, int format, int type, int dims, const int *size)
{
    return tensor_set(tensor, type, format, dims, size, NULL);
}

EXPORT int cudnnSetTensor4dDescriptor(word tensor, int format, int type, int n, int c, int h, int w);
EXPORT int cudnnSetTensor4dDescriptor(word tensor, int format, int type, int n, int c, int h, int w)
{
    return tensor_set(tensor, type, format, 4, (int[]){n, c, h, w}, NULL);
}

EXPORT int cudnnSetTensor4dDescriptorEx(word tensor, int type, int n, int c, int h, int w, int n_step, int c_step,
                                        int h_step, int w_step);
EXPORT int cudnnSetTensor4dDescriptorEx(word tensor, int type, int n, int c, int h, int w, int n_step, int c_step,
                                        int h_step, int w_step)
{
    return tensor_set(tensor, type, 0, 4, (int[]){n, c, h, w}, (int[]){n_step, c_step, h_step, w_step});
}

EXPORT int cudnnGetTensorNdDescriptor(word descriptor, int wanted, int *type, int *dims, int *size, int *step);
EXPORT int cudnnGetTensorNdDescriptor(word descriptor, int wanted, int *type, int *dims, int *size, int *step)
{
    struct cudnn_tensor tensor = tensor_get(descriptor);
    *type = tensor.type;
    *dims = tensor.dims;
    for (int i = 0; i < tensor.dims && i < wanted; i++) {
        size[i] = (int)tensor.size[i];
        step[i] = (int)tensor.step[i];
    }
    return 0;
}

EXPORT int cudnnGetTensor4dDescriptor(word descriptor, int *type, int *n, int *c, int *h, int *w, int *n_step,
                                      int *c_step, int *h_step, int *w_step);
EXPORT int cudnnGetTensor4dDescriptor(word descriptor, int *type, int *n, int *c, int *h, int *w, int *n_step,
                                      int *c_step, int *h_step, int *w_step)
{
    struct cudnn_tensor tensor = tensor_get(descriptor);
    int *sizes[] = {n, c, h, w}, *steps[] = {n_step, c_step, h_step, w_step};
    *type = tensor.type;
    for (int i = 0; i < 4; i++) {
        *sizes[i] = (int)tensor.size[i];
        *steps[i] = (int)tensor.step[i];
    }
    return 0;
}

EXPORT int cudnnGetTensorSizeInBytes(word descriptor, size_t *bytes);
EXPORT int cudnnGetTensorSizeInBytes(word descriptor, size_t *bytes)
{
    struct cudnn_tensor tensor = tensor_get(descriptor);
    *bytes = cudnn_bytes(&tensor);
    return 0;
}
EXPORT int cudnnGetFilterSizeInBytes(word descriptor, size_t *bytes)
    __attribute__((alias("cudnnGetTensorSizeInBytes")));

EXPORT int cudnnSetFilterNdDescriptor(word filter, int type, int format, int dims, const int *size);
EXPORT int cudnnSetFilterNdDescriptor(word filter, int type, int format, int dims, const int *size)
{
    return tensor_set(filter, type, format, dims, size, NULL);
}

EXPORT int cudnnSetFilter4dDescriptor(word filter, int type, int format, int k, int c, int h, int w);
EXPORT int cudnnSetFilter4dDescriptor(word filter, int type, int format, int k, int c, int h, int w)
{
    return tensor_set(filter, type, format, 4, (int[]){k, c, h, w}, NULL);
}

EXPORT int cudnnGetFilterNdDescriptor(word descriptor, int wanted, int *type, int *format, int *dims, int *size);
EXPORT int cudnnGetFilterNdDescriptor(word descriptor, int wanted, int *type, int *format, int *dims, int *size)
{
    struct cudnn_tensor tensor = tensor_get(descriptor);
    *type = tensor.type;
    *format = (int)standin_number(standin_object(descriptor), FORMAT, 0);
    *dims = tensor.dims;
    for (int i = 0; i < tensor.dims && i < wanted; i++)
        size[i] = (int)tensor.size[i];
    return 0;
}

EXPORT int cudnnGetFilter4dDescriptor(word descriptor, int *type, int *format, int *k, int *c, int *h, int *w);
EXPORT int cudnnGetFilter4dDescriptor(word descriptor, int *type, int *format, int *k, int *c, int *h, int *w)
{
    struct cudnn_tensor tensor = tensor_get(descriptor);
    int *sizes[] = {k, c, h, w};
    *type = tensor.type;
    *format = (int)standin_number(standin_object(descriptor), FORMAT, 0);
    for (int i = 0; i < 4; i++)
        *sizes[i] = (int)tensor.size[i];
    return 0;
}

/* Statistics have one value per channel: modes 0 and, for one per activation, all but the batch. */
EXPORT int cudnnDeriveBNTensorDescriptor(word derived, word x, int mode);
EXPORT int cudnnDeriveBNTensorDescriptor(word derived, word x, int mode)
{
    struct cudnn_tensor tensor = tensor_get(x);
    for (int i = 0; i < tensor.dims; i++)
        if (i == 0 || (i > 1 && mode != 0))
            tensor.size[i] = 1;
    if (tensor.type == 2 || tensor.type == 9)
        tensor.type = 0;
    tensor_steps(&tensor, 0);
    return tensor_keep(derived, &tensor);
}

/* ---- convolutions ------------------------------------------------------------------------------------------------ */

EXPORT int cudnnSetConvolutionNdDescriptor(word descriptor, int dims, const int *pad, const int *stride,
                                           const int *dilation, int mode, int type);
EXPORT int cudnnSetConvolutionNdDescriptor(word descriptor, int dims, const int *pad, const int *stride,
                                           const int *dilation, int mode, int type)
{
    struct standin_object *object = standin_object(descriptor);
    size_t bytes = (size_t)dims * sizeof(int);
    if (dims < 0 || dims > CUDNN_DIMS)
        return STANDIN_BAD_PARAM;
    bool done = standin_set(object, PAD, pad, bytes, false) && standin_set(object, STRIDE, stride, bytes, false) &&
                standin_set(object, DILATION, dilation, bytes, false) && standin_set_number(object, MODE, mode) &&
                standin_set_number(object, TYPE, type);
    return done ? 0 : STANDIN_NO_MEMORY;
}

EXPORT int cudnnSetConvolution2dDescriptor(word descriptor, int pad_h, int pad_w, int u, int v, int dilation_h,
                                           int dilation_w, int mode, int type);
EXPORT int cudnnSetConvolution2dDescriptor(word descriptor, int pad_h, int pad_w, int u, int v, int dilation_h,
                                           int dilation_w, int mode, int type)
{
    return cudnnSetConvolutionNdDescriptor(descriptor, 2, (int[]){pad_h, pad_w}, (int[]){u, v},
                                           (int[]){dilation_h, dilation_w}, mode, type);
}

static int convolution_part(word descriptor, long key, int wanted, int *to, int otherwise)
{
    size_t bytes;
    const void *value = standin_get(standin_object(descriptor), key, &bytes);
    int dims = (int)(bytes / sizeof *to);
    for (int i = 0; i < wanted; i++)
        to[i] = otherwise;
    if (value)
        memcpy(to, value, (size_t)(dims < wanted ? dims : wanted) * sizeof *to);
    return dims;
}

EXPORT int cudnnGetConvolutionNdDescriptor(word descriptor, int wanted, int *dims, int *pad, int *stride, int *dilation,
                                           int *mode, int *type);
EXPORT int cudnnGetConvolutionNdDescriptor(word descriptor, int wanted, int *dims, int *pad, int *stride, int *dilation,
                                           int *mode, int *type)
{
    *dims = convolution_part(descriptor, PAD, wanted, pad, 0);
    convolution_part(descriptor, STRIDE, wanted, stride, 1);
    convolution_part(descriptor, DILATION, wanted, dilation, 1);
    *mode = (int)standin_number(standin_object(descriptor), MODE, 0);
    *type = (int)standin_number(standin_object(descriptor), TYPE, 0);
    return 0;
}

EXPORT int cudnnGetConvolution2dDescriptor(word descriptor, int *pad_h, int *pad_w, int *u, int *v, int *dilation_h,
                                           int *dilation_w, int *mode, int *type);
EXPORT int cudnnGetConvolution2dDescriptor(word descriptor, int *pad_h, int *pad_w, int *u, int *v, int *dilation_h,
                                           int *dilation_w, int *mode, int *type)
{
    int dims, pad[2], stride[2], dilation[2];
    cudnnGetConvolutionNdDescriptor(descriptor, 2, &dims, pad, stride, dilation, mode, type);
    *pad_h = pad[0], *pad_w = pad[1];
    *u = stride[0], *v = stride[1];
    *dilation_h = dilation[0], *dilation_w = dilation[1];
    return 0;
}

S(cudnnSetConvolutionMathType, MATH, 2)
G(cudnnGetConvolutionMathType, MATH, 2, int, 0)
S(cudnnSetConvolutionGroupCount, GROUPS, 2)
G(cudnnGetConvolutionGroupCount, GROUPS, 2, int, 1)
S(cudnnSetConvolutionReorderType, REORDER, 2)
G(cudnnGetConvolutionReorderType, REORDER, 2, int, 0)

EXPORT int cudnnGetConvolutionNdForwardOutputDim(word convolution, word x, word w, int wanted, int *size);
EXPORT int cudnnGetConvolutionNdForwardOutputDim(word convolution, word x, word w, int wanted, int *size)
{
    struct cudnn_tensor input = tensor_get(x), filter = tensor_get(w);
    int pad[CUDNN_DIMS], stride[CUDNN_DIMS], dilation[CUDNN_DIMS];
    convolution_part(convolution, PAD, CUDNN_DIMS, pad, 0);
    convolution_part(convolution, STRIDE, CUDNN_DIMS, stride, 1);
    convolution_part(convolution, DILATION, CUDNN_DIMS, dilation, 1);
    for (int i = 0; i < wanted && i < input.dims; i++) {
        int64_t reach = i > 1 ? (filter.size[i] - 1) * dilation[i - 2] + 1 : 0;
        if (i > 1)
            size[i] = (int)(1 + (input.size[i] + 2 * pad[i - 2] - reach) / (stride[i - 2] ? stride[i - 2] : 1));
        else
            size[i] = (int)(i ? filter.size[0] : input.size[0]);
    }
    return 0;
}

EXPORT int cudnnGetConvolution2dForwardOutputDim(word convolution, word x, word w, int *n, int *c, int *height,
                                                 int *width);
EXPORT int cudnnGetConvolution2dForwardOutputDim(word convolution, word x, word w, int *n, int *c, int *height,
                                                 int *width)
{
    int size[4] = {0};
    cudnnGetConvolutionNdForwardOutputDim(convolution, x, w, 4, size);
    *n = size[0], *c = size[1], *height = size[2], *width = size[3];
    return 0;
}

static size_t convolution_workspace(enum cudnn_direction direction, word x, word w, word y, word convolution)
{
    enum { FMA = 3 };
    struct cudnn_tensor input = tensor_get(x), filter = tensor_get(w), output = tensor_get(y);
    bool exact = standin_number(standin_object(convolution), MATH, 0) == FMA;
    return cudnn_convolution_workspace(direction, &input, &filter, &output, exact);
}

/* The four descriptors come in an order of each function's own: positions of x, w, y and convolution. */
#define WORKSPACE(_function, _direction, _x, _w, _y, _convolution)                                                     \
    EXPORT int _function(ARGS);                                                                                        \
    EXPORT int _function(ARGS)                                                                                         \
    {                                                                                                                  \
        UNREAD;                                                                                                        \
        *(size_t *)a7 = convolution_workspace(_direction, _x, _w, _y, _convolution);                                   \
        return 0;                                                                                                      \
    }
WORKSPACE(cudnnGetConvolutionForwardWorkspaceSize, CUDNN_FORWARD, a2, a3, a5, a4)
WORKSPACE(cudnnGetConvolutionBackwardDataWorkspaceSize, CUDNN_DATA, a5, a2, a3, a4)
WORKSPACE(cudnnGetConvolutionBackwardFilterWorkspaceSize, CUDNN_FILTER, a2, a5, a3, a4)

struct convolution_algorithm {
    int algorithm, status;
    float time;
    size_t memory;
    int determinism, math;
    int reserved[3];
};

static int algorithm_answer(int wanted, int *count, struct convolution_algorithm *result, size_t workspace)
{
    *count = wanted > 0;
    if (wanted > 0) /* implicit GEMM with precomputed indices; the same number is an algorithm of every direction */
        *result = (struct convolution_algorithm){.algorithm = 1, .memory = workspace, .determinism = 1};
    return 0;
}

/* Positions of the number wanted, the number found and the results. */
#define ALGORITHM(_function, _direction, _x, _w, _y, _convolution, _wanted, _count, _results)                          \
    EXPORT int _function(ARGS);                                                                                        \
    EXPORT int _function(ARGS)                                                                                         \
    {                                                                                                                  \
        UNREAD;                                                                                                        \
        return algorithm_answer((int)_wanted, (int *)_count, (struct convolution_algorithm *)_results,                 \
                                convolution_workspace(_direction, _x, _w, _y, _convolution));                          \
    }
ALGORITHM(cudnnGetConvolutionForwardAlgorithm_v7, CUDNN_FORWARD, a2, a3, a5, a4, a6, a7, a8)
ALGORITHM(cudnnGetConvolutionBackwardDataAlgorithm_v7, CUDNN_DATA, a5, a2, a3, a4, a6, a7, a8)
ALGORITHM(cudnnGetConvolutionBackwardFilterAlgorithm_v7, CUDNN_FILTER, a2, a5, a3, a4, a6, a7, a8)
ALGORITHM(cudnnFindConvolutionForwardAlgorithm, CUDNN_FORWARD, a2, a3, a5, a4, a6, a7, a8)
ALGORITHM(cudnnFindConvolutionBackwardDataAlgorithm, CUDNN_DATA, a5, a2, a3, a4, a6, a7, a8)
ALGORITHM(cudnnFindConvolutionBackwardFilterAlgorithm, CUDNN_FILTER, a2, a5, a3, a4, a6, a7, a8)
/* Those with Ex have each tensor's memory behind its descriptor, and none for the convolution. */
ALGORITHM(cudnnFindConvolutionForwardAlgorithmEx, CUDNN_FORWARD, a2, a4, a7, a6, a9, a10, a11)
ALGORITHM(cudnnFindConvolutionBackwardDataAlgorithmEx, CUDNN_DATA, a7, a2, a4, a6, a9, a10, a11)
ALGORITHM(cudnnFindConvolutionBackwardFilterAlgorithmEx, CUDNN_FILTER, a2, a7, a4, a6, a9, a10, a11)

static int algorithm_most(word handle, int *count)
{
    (void)handle;
    *count = 1;
    return 0;
}
EXPORT int cudnnGetConvolutionForwardAlgorithmMaxCount(word handle, int *count)
    __attribute__((alias("algorithm_most")));
EXPORT int cudnnGetConvolutionBackwardDataAlgorithmMaxCount(word handle, int *count)
    __attribute__((alias("algorithm_most")));
EXPORT int cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(word handle, int *count)
    __attribute__((alias("algorithm_most")));

/* ---- other layers ------------------------------------------------------------------------------------------------ */

KEPT(cudnnSetOpTensorDescriptor)
TOLD(cudnnGetOpTensorDescriptor, "iii")
KEPT(cudnnSetReduceTensorDescriptor)
TOLD(cudnnGetReduceTensorDescriptor, "iiiii")
KEPT(cudnnSetCTCLossDescriptor)
TOLD(cudnnGetCTCLossDescriptor, "i")
KEPT(cudnnSetCTCLossDescriptorEx)
TOLD(cudnnGetCTCLossDescriptorEx, "iii")
KEPT(cudnnSetCTCLossDescriptor_v8)
TOLD(cudnnGetCTCLossDescriptor_v8, "iiii")
KEPT(cudnnSetCTCLossDescriptor_v9)
TOLD(cudnnGetCTCLossDescriptor_v9, "iiii")
KEPT(cudnnSetPooling2dDescriptor)
TOLD(cudnnGetPooling2dDescriptor, "iiiiiiii")

/* Arguments 4 to 9 of the descriptor are window, padding and stride, height first. */
EXPORT int cudnnGetPooling2dForwardOutputDim(word pooling, word x, int *n, int *c, int *height, int *width);
EXPORT int cudnnGetPooling2dForwardOutputDim(word pooling, word x, int *n, int *c, int *height, int *width)
{
    const struct standin_object *object = standin_object(pooling);
    struct cudnn_tensor input = tensor_get(x);
    int *sizes[2] = {height, width};
    *n = (int)input.size[0];
    *c = (int)input.size[1];
    for (int i = 0; i < 2; i++) {
        int window = (int)standin_kept(object, 4 + i), padding = (int)standin_kept(object, 6 + i),
            stride = (int)standin_kept(object, 8 + i);
        *sizes[i] = 1 + ((int)input.size[2 + i] + 2 * padding - window) / (stride ? stride : 1);
    }
    return 0;
}

EXPORT int cudnnDropoutGetStatesSize(void *handle, size_t *bytes);
EXPORT int cudnnDropoutGetStatesSize(void *handle, size_t *bytes)
{
    enum { STATE = 48, THREADS = 2048 };
    (void)handle;
    *bytes = (size_t)standin_multiprocessors() * THREADS * STATE;
    standin_assumed("dropout: 48 bytes of state for each of 2048 threads of a multiprocessor");
    return 0;
}

EXPORT int cudnnDropoutGetReserveSpaceSize(word x, size_t *bytes);
EXPORT int cudnnDropoutGetReserveSpaceSize(word x, size_t *bytes)
{
    struct cudnn_tensor tensor = tensor_get(x);
    *bytes = (cudnn_bytes(&tensor) / cudnn_element(tensor.type) + 7) / 8;
    standin_assumed("dropout: a reserve of a bit for each element");
    return 0;
}

/* Answers of 0 that the report names. */
#define NO_SPACE(_function, _position)                                                                                 \
    EXPORT int _function(ARGS);                                                                                        \
    EXPORT int _function(ARGS)                                                                                         \
    {                                                                                                                  \
        UNREAD;                                                                                                        \
        standin_assumed(#_function ": nothing");                                                                       \
        *(size_t *)a##_position = 0;                                                                                   \
        return 0;                                                                                                      \
    }
NO_SPACE(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize, 9)
NO_SPACE(cudnnGetBatchNormalizationBackwardExWorkspaceSize, 11)
NO_SPACE(cudnnGetBatchNormalizationTrainingExReserveSpaceSize, 6)
NO_SPACE(cudnnGetNormalizationForwardTrainingWorkspaceSize, 11)
NO_SPACE(cudnnGetNormalizationBackwardWorkspaceSize, 13)
NO_SPACE(cudnnGetNormalizationTrainingReserveSpaceSize, 7)
NO_SPACE(cudnnGetCTCLossWorkspaceSize, 9)
NO_SPACE(cudnnGetCTCLossWorkspaceSize_v8, 6)
NO_SPACE(cudnnGetReductionWorkspaceSize, 5)

/* ---- the library ------------------------------------------------------------------------------------------------- */

/* Programs refuse one that is older than they were built with. */
static int version(int part)
{
    static const int newest[][3] = {{8, 9, 7}, {9, 27, 0}};
    return standin_version(part, newest[standin_major() >= 9]);
}

EXPORT size_t cudnnGetVersion(void);
EXPORT size_t cudnnGetVersion(void)
{
    return (size_t)(version(0) * (version(0) < 9 ? 1000 : 10000) + version(1) * 100 + version(2));
}

EXPORT size_t cudnnGetCudartVersion(void);
EXPORT size_t cudnnGetCudartVersion(void)
{
    return standin_major() < 9 ? 12000 : 12090;
}

EXPORT size_t cudnnGetMaxDeviceVersion(void);
EXPORT size_t cudnnGetMaxDeviceVersion(void)
{
    return standin_major() < 9 ? 900 : 1210;
}

EXPORT int cudnnGetProperty(int part, int *value);
EXPORT int cudnnGetProperty(int part, int *value)
{
    return standin_property(part, value, version, STANDIN_BAD_PARAM);
}

EXPORT const char *cudnnGetErrorString(int status);
EXPORT const char *cudnnGetErrorString(int status)
{
    if (status == 0)
        return "CUDNN_STATUS_SUCCESS";
    if (status == STANDIN_NOT_SUPPORTED)
        return "CUDNN_STATUS_NOT_SUPPORTED";
    if (status == STANDIN_BAD_PARAM)
        return "CUDNN_STATUS_BAD_PARAM";
    if (status == STANDIN_NO_MEMORY)
        return "CUDNN_STATUS_ALLOC_FAILED";
    return "CUDNN_STATUS_INTERNAL_ERROR";
}

EXPORT void cudnnGetLastErrorString(char *message, size_t size);
EXPORT void cudnnGetLastErrorString(char *message, size_t size)
{
    if (size)
        message[0] = '\0';
}
