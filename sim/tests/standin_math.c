/* SPDX-License-Identifier: MIT
 * Selftest: stand-ins for cuBLAS, cuBLASLt, handles of cuSOLVER, and cuDNN.  Handles, sizes and descriptors answer as the real ones do, results
 * count as computed, and the report names each assumption once. */
#define _GNU_SOURCE
#include "standin_check.h"

/* Capability 9: a handle of cuBLAS 13 has two small blocks beside its workspace. */
static void blas(const char *name, long long takes)
{
    void *blas = library(name), *handle = NULL, *stream = NULL;
    FUNCTION(int, cublasCreate_v2, blas, void **);
    FUNCTION(int, cublasDestroy_v2, blas, void *);
    FUNCTION(int, cublasSetStream_v2, blas, void *, void *);
    FUNCTION(int, cublasGetStream_v2, blas, void *, void **);
    FUNCTION(int, cublasSetMathMode, blas, void *, int);
    FUNCTION(int, cublasGetMathMode, blas, void *, int *);
    FUNCTION(int, cublasGetVersion_v2, blas, void *, int *);
    FUNCTION(int, cublasSdot_v2, blas, void *, int, const float *, int, const float *, int, float *);
    FUNCTION(int, cublasSgemm_v2, blas, void *, int, int, int, int, int, const float *, const float *, int,
             const float *, int, const float *, float *, int);
    FUNCTION(int, cublasSetVector, blas, int, int, const void *, int, void *, int);
    FUNCTION(int, cublasGetVector, blas, int, int, const void *, int, void *, int);
    FUNCTION(const char *, cublasGetStatusName, blas, int);
    int mode = -1, version = 0;
    float one = 1, dot = 5, numbers[4] = {1, 2, 3, 4}, back[4] = {0};
    CUdeviceptr c = 0, a = 0;

    long long before = used();
    CHECK_EQ(cublasCreate_v2(&handle), 0);
    CHECK_EQ(used() - before, takes);
    CHECK_EQ(cublasSetStream_v2(handle, (void *)0x1230), 0);
    CHECK_EQ(cublasGetStream_v2(handle, &stream), 0);
    CHECK(stream == (void *)0x1230);
    CHECK_EQ(cublasSetMathMode(handle, 3), 0);
    CHECK_EQ(cublasGetMathMode(handle, &mode), 0);
    CHECK_EQ(mode, 3);
    CHECK_EQ(cublasGetVersion_v2(handle, &version), 0);
    CHECK_EQ(version / 10000, atoi(strstr(name, ".so.") + 4));
    CHECK(!strcmp(cublasGetStatusName(0), "CUBLAS_STATUS_SUCCESS"));

    CHECK_OK(cuMemAlloc(&c, 4096));
    CHECK_OK(cuMemAlloc(&a, 4096));
    CHECK_EQ(cublasSdot_v2(handle, 1, (void *)a, 1, (void *)a, 1, &dot), 0);
    CHECK(dot == 0); /* a result on the host */
    CHECK_EQ(cublasSetVector(2, 8, numbers, 1, (void *)c, 1), 0);
    CHECK_EQ(cublasSetVector(4, 4, numbers, 1, (void *)a, 1), 0);
    CHECK_EQ(cublasGetVector(2, 4, (void *)c, 2, back, 1), 0);
    CHECK(back[0] == 1 && back[1] == 3);
    CHECK_EQ(cublasSgemm_v2(handle, 0, 0, 2, 2, 2, &one, (void *)a, 2, (void *)a, 2, &one, (void *)c, 2), 0);
    CHECK_OK(cuMemcpyDtoH(back, c, sizeof back));
    CHECK(back[0] == 0 && back[3] == 0); /* computed */
    CHECK_OK(cuMemcpyDtoH(back, a, sizeof back));
    CHECK(back[3] == 4); /* an input */
    CHECK_EQ(cublasDestroy_v2(handle), 0);
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:2:16:8", 1);
    long long without = used();
    CHECK_EQ(cublasCreate_v2(&handle), 0);
    CHECK_EQ(used() - without, takes % CHECK_MIB + 8 * CHECK_MIB + 128 * 1024);
    CHECK_EQ(cublasDestroy_v2(handle), 0);
    unsetenv("CUBLAS_WORKSPACE_CONFIG");
    CHECK_OK(cuMemFree(a));
    CHECK_OK(cuMemFree(c));
    CHECK_EQ(used(), before);
}

/* A handle of cuBLAS, and a workspace for it. */
static void solver(void)
{
    void *solver = library("libcusolver.so.12"), *handle = NULL;
    FUNCTION(int, cusolverDnCreate, solver, void **);
    FUNCTION(int, cusolverDnDestroy, solver, void *);
    long long before = used();
    CHECK_EQ(cusolverDnCreate(&handle), 0);
    CHECK_EQ(used() - before, (64 + 32) * CHECK_MIB + 131072 + 1024);
    CHECK_EQ(cusolverDnDestroy(handle), 0);
    CHECK_EQ(used(), before);
}

static void blas_lt(void)
{
    struct {
        uint64_t algorithm[8];
        size_t workspace;
        int status;
        float waves;
        int reserved[4];
    } result = {.workspace = 99, .status = 99};
    void *lt = library("libcublasLt.so.12"), *layout = NULL, *product = NULL;
    FUNCTION(int, cublasLtMatrixLayoutCreate, lt, void **, int, uint64_t, uint64_t, int64_t);
    FUNCTION(int, cublasLtMatrixLayoutGetAttribute, lt, void *, int, void *, size_t, size_t *);
    FUNCTION(int, cublasLtMatrixLayoutSetAttribute, lt, void *, int, const void *, size_t);
    FUNCTION(int, cublasLtMatrixLayoutDestroy, lt, void *);
    FUNCTION(int, cublasLtMatmulDescInit_internal, lt, void *, size_t, int, int);
    FUNCTION(int, cublasLtMatmulDescSetAttribute, lt, void *, int, const void *, size_t);
    FUNCTION(int, cublasLtMatmulAlgoGetHeuristic, lt, void *, void *, void *, void *, void *, void *, void *, int,
             void *, int *);
    FUNCTION(size_t, cublasLtGetVersion, lt, void);
    uint64_t rows = 0, own[16];
    size_t written = 0;
    int batch = 7, found = -1;

    CHECK_EQ(cublasLtMatrixLayoutCreate(&layout, 0, 640, 480, 640), 0);
    CHECK_EQ(cublasLtMatrixLayoutGetAttribute(layout, 2, &rows, sizeof rows, &written), 0);
    CHECK_EQ(rows, 640);
    CHECK_EQ(written, sizeof rows);
    CHECK_EQ(cublasLtMatrixLayoutSetAttribute(layout, 5, &batch, sizeof batch), 0);
    batch = 0;
    CHECK_EQ(cublasLtMatrixLayoutGetAttribute(layout, 5, &batch, sizeof batch, NULL), 0);
    CHECK_EQ(batch, 7);
    memset(own, 0xff, sizeof own);
    product = own; /* a descriptor in the program's memory */
    CHECK_EQ(cublasLtMatmulDescInit_internal(product, sizeof own, 0, 0), 0);
    CHECK_EQ(cublasLtMatmulDescSetAttribute(product, 3, &batch, sizeof batch), 0);
    CHECK_EQ(cublasLtMatmulAlgoGetHeuristic(NULL, product, layout, layout, layout, layout, NULL, 4, &result, &found),
             0);
    CHECK_EQ(found, 1);
    CHECK_EQ(result.workspace, 0);
    CHECK_EQ(result.status, 0);
    CHECK_EQ(cublasLtMatrixLayoutDestroy(layout), 0);
    CHECK_EQ(cublasLtGetVersion() / 10000, 12);
}

/* cudnn_backend.h's numbers. */
enum { DATA_TYPE = 1, INT64 = 3, DESCRIPTOR = 15 };
static int (*set)(void *, int, int, int64_t, const void *);

static void *dnn_tensor(int (*create)(int, void **), int (*finalize)(void *), const int64_t *size, int type)
{
    int64_t step[4] = {size[1] * size[2] * size[3], size[2] * size[3], size[3], 1};
    void *tensor = NULL;
    CHECK_EQ(create(17, &tensor), 0);
    CHECK_EQ(set(tensor, 901, DATA_TYPE, 1, &type), 0);
    CHECK_EQ(set(tensor, 902, INT64, 4, size), 0);
    CHECK_EQ(set(tensor, 903, INT64, 4, step), 0);
    CHECK_EQ(finalize(tensor), 0);
    return tensor;
}

/* A part that a program opens by itself has the functions of the whole, and its descriptors. */
static void dnn_parts(void)
{
    void *whole = library("libcudnn.so.9"), *part = library("libcudnn_graph.so.9");
    void *older = library("libcudnn_ops_infer.so.8");
    FUNCTION(int, cudnnBackendCreateDescriptor, part, int, void **);
    CHECK((void *)cudnnBackendCreateDescriptor == dlsym(whole, "cudnnBackendCreateDescriptor"));
    FUNCTION(size_t, cudnnGetVersion, older, void);
    CHECK_EQ((long long)(cudnnGetVersion() / 1000), 8);
}

/* A graph of attention has products of matrices. */
static void dnn_product(void *dnn)
{
    FUNCTION(int, cudnnBackendCreateDescriptor, dnn, int, void **);
    FUNCTION(int, cudnnBackendGetAttribute, dnn, void *, int, int, int64_t, int64_t *, void *);
    void *operation, *graph, *heuristic, *config, *plan;
    int64_t count = 0, workspace = 0;
    *(void **)&set = dlsym(dnn, "cudnnBackendSetAttribute");
    CHECK_EQ(cudnnBackendCreateDescriptor(19, &operation), 0);
    CHECK_EQ(cudnnBackendCreateDescriptor(15, &graph), 0);
    CHECK_EQ(set(graph, 801, DESCRIPTOR, 1, &operation), 0);
    CHECK_EQ(cudnnBackendCreateDescriptor(4, &heuristic), 0);
    CHECK_EQ(set(heuristic, 201, DESCRIPTOR, 1, &graph), 0);
    CHECK_EQ(cudnnBackendCreateDescriptor(3, &config), 0);
    CHECK_EQ(cudnnBackendGetAttribute(heuristic, 202, DESCRIPTOR, 1, &count, &config), 0);
    CHECK_EQ(count, 1);
    CHECK_EQ(cudnnBackendCreateDescriptor(5, &plan), 0);
    CHECK_EQ(set(plan, 401, DESCRIPTOR, 1, &config), 0);
    CHECK_EQ(cudnnBackendGetAttribute(plan, 402, INT64, 1, &count, &workspace), 0);
    CHECK_EQ(workspace, 512);
}

/* Of fp32 there are two engines: one with tensor cores, whose notes say so, and one without.  A program may ask for less. */
static void dnn_engines(void *dnn)
{
    FUNCTION(int, cudnnBackendCreateDescriptor, dnn, int, void **);
    FUNCTION(int, cudnnBackendDestroyDescriptor, dnn, void *);
    FUNCTION(int, cudnnBackendFinalize, dnn, void *);
    FUNCTION(int, cudnnBackendGetAttribute, dnn, void *, int, int, int64_t, int64_t *, void *);
    static const int64_t size[3][4] = {{16, 64, 56, 56}, {64, 64, 3, 3}, {16, 64, 56, 56}};
    static const int name[3] = {716, 715, 717};
    void *tensor, *operation, *graph, *heuristic, *config[2], *engine, *plan;
    int64_t count = -1, workspace[2] = {-1, -1}, notes[2] = {-1, -1};
    *(void **)&set = dlsym(dnn, "cudnnBackendSetAttribute");

    CHECK_EQ(cudnnBackendCreateDescriptor(11, &operation), 0); /* the gradient of the filter */
    for (int i = 0; i < 3; i++) {
        tensor = dnn_tensor(cudnnBackendCreateDescriptor, cudnnBackendFinalize, size[i], 0);
        CHECK_EQ(set(operation, name[i], DESCRIPTOR, 1, &tensor), 0);
        CHECK_EQ(cudnnBackendDestroyDescriptor(tensor), 0);
    }
    CHECK_EQ(cudnnBackendCreateDescriptor(15, &graph), 0);
    CHECK_EQ(set(graph, 801, DESCRIPTOR, 1, &operation), 0);
    CHECK_EQ(cudnnBackendCreateDescriptor(4, &heuristic), 0);
    CHECK_EQ(set(heuristic, 201, DESCRIPTOR, 1, &graph), 0);
    CHECK_EQ(cudnnBackendGetAttribute(heuristic, 202, DESCRIPTOR, 0, &count, NULL), 0);
    CHECK_EQ(count, 2);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(cudnnBackendCreateDescriptor(3, &config[i]), 0);
    CHECK_EQ(cudnnBackendGetAttribute(heuristic, 202, DESCRIPTOR, 1, &count, config), 0);
    CHECK_EQ(count, 1); /* PyTorch 2.15 wants the best one, and reads as many as this */
    CHECK_EQ(cudnnBackendGetAttribute(heuristic, 202, DESCRIPTOR, 2, &count, config), 0);
    CHECK_EQ(count, 2);
    for (int i = 0; i < 2; i++) {
        int note = -1;
        CHECK_EQ(cudnnBackendCreateDescriptor(2, &engine), 0);
        CHECK_EQ(cudnnBackendGetAttribute(config[i], 300, DESCRIPTOR, 1, &count, &engine), 0);
        CHECK_EQ(cudnnBackendGetAttribute(engine, 1303, 20, 1, &notes[i], &note), 0);
        CHECK_EQ(note, i == 0 ? 0 : -1);
        CHECK_EQ(cudnnBackendCreateDescriptor(5, &plan), 0);
        CHECK_EQ(set(plan, 401, DESCRIPTOR, 1, &config[i]), 0);
        CHECK_EQ(cudnnBackendGetAttribute(plan, 402, INT64, 1, &count, &workspace[i]), 0);
        CHECK_EQ(cudnnBackendDestroyDescriptor(plan), 0);
        CHECK_EQ(cudnnBackendDestroyDescriptor(engine), 0);
        CHECK_EQ(cudnnBackendDestroyDescriptor(config[i]), 0);
    }
    CHECK(notes[0] == 1 && notes[1] == 0);
    CHECK_EQ((workspace[0] + 511) / 512 * 512, 27902976);
    CHECK_EQ(workspace[1], 58392576);
    CHECK_EQ(cudnnBackendDestroyDescriptor(heuristic), 0);
    CHECK_EQ(cudnnBackendDestroyDescriptor(graph), 0);
    CHECK_EQ(cudnnBackendDestroyDescriptor(operation), 0);
}

/* What PyTorch took for workspaces of cuDNN 9 on an H200, 16 images each, in blocks of 512 bytes.  Forms: TF32, exact fp32,
 * bf16, all with the channels first; bf16, fp16, TF32 with the channels last.  Not seen: the two with a filter of
 * 33, which fits into no tile of a Fourier transform. */
static void dnn_workspaces(void *dnn)
{
    enum { FORWARD, DATA, FILTER };
    static const struct {
        int in, height, out, reach, stride, form, direction;
        size_t bytes;
    } rows[] = {
        {3, 224, 64, 7, 2, 0, FORWARD, 61051904},     {3, 224, 64, 7, 2, 1, FORWARD, 0},
        {3, 224, 64, 7, 2, 2, FORWARD, 38585856},     {3, 224, 64, 7, 2, 3, FORWARD, 12895744},
        {3, 224, 64, 7, 2, 4, FORWARD, 6448128},      {3, 224, 64, 7, 2, 5, FORWARD, 9671680},
        {64, 56, 64, 1, 1, 2, FILTER, 262144},        {64, 56, 64, 3, 1, 0, FORWARD, 12993024},
        {64, 56, 64, 3, 1, 0, DATA, 25838080},        {64, 56, 64, 3, 1, 0, FILTER, 27902976},
        {64, 56, 64, 3, 1, 1, DATA, 35651584},        {64, 56, 64, 3, 1, 1, FILTER, 58392576},
        {256, 28, 256, 3, 1, 1, DATA, 320864256},     {256, 28, 256, 3, 1, 1, FILTER, 67239936},
        {512, 14, 512, 3, 1, 1, FILTER, 75497472},    {128, 56, 128, 3, 2, 0, FILTER, 36832256},
        {128, 56, 128, 3, 2, 2, FORWARD, 16351744},   {256, 28, 256, 3, 1, 5, FILTER, 7078912},
        {512, 14, 512, 3, 1, 5, FILTER, 8651776},     {512, 14, 512, 3, 1, 2, DATA, 11141632},
        {1024, 14, 2048, 1, 2, 0, FORWARD, 19268096}, {512, 7, 512, 3, 1, 0, FORWARD, 12648960},
        {4, 64, 320, 3, 1, 2, FORWARD, 43038208},     {4, 64, 320, 3, 1, 4, FORWARD, 0},
        {320, 64, 320, 3, 1, 2, FORWARD, 85729792},   {320, 64, 320, 3, 1, 3, DATA, 0},
        {16, 64, 16, 33, 1, 0, DATA, 9504256},        {16, 64, 16, 33, 1, 1, DATA, 0},
    };
    FUNCTION(int, cudnnCreateTensorDescriptor, dnn, void **);
    FUNCTION(int, cudnnCreateFilterDescriptor, dnn, void **);
    FUNCTION(int, cudnnCreateConvolutionDescriptor, dnn, void **);
    FUNCTION(int, cudnnSetTensor4dDescriptor, dnn, void *, int, int, int, int, int, int);
    FUNCTION(int, cudnnSetFilter4dDescriptor, dnn, void *, int, int, int, int, int, int);
    FUNCTION(int, cudnnSetConvolutionMathType, dnn, void *, int);
    FUNCTION(int, cudnnGetConvolutionForwardWorkspaceSize, dnn, void *, void *, void *, void *, void *, int, size_t *);
    FUNCTION(int, cudnnGetConvolutionBackwardDataWorkspaceSize, dnn, void *, void *, void *, void *, void *, int,
             size_t *);
    FUNCTION(int, cudnnGetConvolutionBackwardFilterWorkspaceSize, dnn, void *, void *, void *, void *, void *, int,
             size_t *);
    void *x, *w, *y, *convolution;
    CHECK_EQ(cudnnCreateTensorDescriptor(&x), 0);
    CHECK_EQ(cudnnCreateTensorDescriptor(&y), 0);
    CHECK_EQ(cudnnCreateFilterDescriptor(&w), 0);
    CHECK_EQ(cudnnCreateConvolutionDescriptor(&convolution), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static const int types[] = {0, 0, 9, 9, 2, 0};
        int form = rows[i].form, type = types[form], last = form >= 3, height = rows[i].height / rows[i].stride;
        size_t bytes = 1;
        CHECK_EQ(cudnnSetTensor4dDescriptor(x, last, type, 16, rows[i].in, rows[i].height, rows[i].height), 0);
        CHECK_EQ(cudnnSetTensor4dDescriptor(y, last, type, 16, rows[i].out, height, height), 0);
        CHECK_EQ(cudnnSetFilter4dDescriptor(w, type, last, rows[i].out, rows[i].in, rows[i].reach, rows[i].reach), 0);
        CHECK_EQ(cudnnSetConvolutionMathType(convolution, form == 1 ? 3 : 0), 0);
        if (rows[i].direction == FORWARD)
            CHECK_EQ(cudnnGetConvolutionForwardWorkspaceSize(NULL, x, w, convolution, y, 1, &bytes), 0);
        else if (rows[i].direction == DATA)
            CHECK_EQ(cudnnGetConvolutionBackwardDataWorkspaceSize(NULL, w, y, convolution, x, 1, &bytes), 0);
        else
            CHECK_EQ(cudnnGetConvolutionBackwardFilterWorkspaceSize(NULL, x, y, convolution, w, 1, &bytes), 0);
        CHECK_EQ((bytes + 511) / 512 * 512, rows[i].bytes);
    }
}

/* The descriptors of the graph end before the plan is asked. */
static void dnn_graph(void *dnn)
{
    FUNCTION(int, cudnnBackendCreateDescriptor, dnn, int, void **);
    FUNCTION(int, cudnnBackendDestroyDescriptor, dnn, void *);
    FUNCTION(int, cudnnBackendFinalize, dnn, void *);
    FUNCTION(int, cudnnBackendGetAttribute, dnn, void *, int, int, int64_t, int64_t *, void *);
    void *tensors[3], *operation = NULL, *graph = NULL, *heuristic = NULL, *config = NULL, *plan = NULL;
    static const int64_t size[3][4] = {{8, 16, 32, 32}, {24, 16, 3, 3}, {8, 24, 32, 32}};
    static const int name[3] = {704, 703, 705};
    int64_t count = -1, workspace = -1;
    *(void **)&set = dlsym(dnn, "cudnnBackendSetAttribute");

    CHECK_EQ(cudnnBackendCreateDescriptor(10, &operation), 0);
    for (int i = 0; i < 3; i++) {
        tensors[i] = dnn_tensor(cudnnBackendCreateDescriptor, cudnnBackendFinalize, size[i], 2);
        CHECK_EQ(set(operation, name[i], DESCRIPTOR, 1, &tensors[i]), 0);
    }
    CHECK_EQ(cudnnBackendCreateDescriptor(15, &graph), 0);
    CHECK_EQ(set(graph, 801, DESCRIPTOR, 1, &operation), 0);
    CHECK_EQ(cudnnBackendCreateDescriptor(4, &heuristic), 0);
    CHECK_EQ(set(heuristic, 201, DESCRIPTOR, 1, &graph), 0);
    CHECK_EQ(cudnnBackendGetAttribute(heuristic, 202, DESCRIPTOR, 0, &count, NULL), 0);
    CHECK_EQ(count, 1);
    CHECK_EQ(cudnnBackendCreateDescriptor(3, &config), 0);
    CHECK_EQ(cudnnBackendGetAttribute(heuristic, 202, DESCRIPTOR, 1, &count, &config), 0);
    CHECK_EQ(cudnnBackendCreateDescriptor(5, &plan), 0);
    CHECK_EQ(set(plan, 401, DESCRIPTOR, 1, &config), 0);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(cudnnBackendDestroyDescriptor(tensors[i]), 0);
    CHECK_EQ(cudnnBackendDestroyDescriptor(operation), 0);
    CHECK_EQ(cudnnBackendDestroyDescriptor(graph), 0);
    CHECK_EQ(cudnnBackendDestroyDescriptor(heuristic), 0);
    CHECK_EQ(cudnnBackendDestroyDescriptor(config), 0);
    CHECK_EQ(cudnnBackendGetAttribute(plan, 402, INT64, 1, &count, &workspace), 0);
    CHECK_EQ(workspace, 2 * (8 * 16 * 32 * 32 + 24 * 16 * 3 * 3 + 8 * 24 * 32 * 32) + 256);
    CHECK_EQ(cudnnBackendDestroyDescriptor(plan), 0);
}

static void dnn(const char *name)
{
    void *dnn = library(name), *handle = NULL, *x = NULL, *w = NULL, *y = NULL, *convolution = NULL;
    FUNCTION(int, cudnnCreate, dnn, void **);
    FUNCTION(int, cudnnDestroy, dnn, void *);
    FUNCTION(int, cudnnCreateTensorDescriptor, dnn, void **);
    FUNCTION(int, cudnnCreateFilterDescriptor, dnn, void **);
    FUNCTION(int, cudnnCreateConvolutionDescriptor, dnn, void **);
    FUNCTION(int, cudnnSetTensor4dDescriptor, dnn, void *, int, int, int, int, int, int);
    FUNCTION(int, cudnnSetFilter4dDescriptor, dnn, void *, int, int, int, int, int, int);
    FUNCTION(int, cudnnSetConvolution2dDescriptor, dnn, void *, int, int, int, int, int, int, int, int);
    FUNCTION(int, cudnnGetConvolution2dForwardOutputDim, dnn, void *, void *, void *, int *, int *, int *, int *);
    FUNCTION(int, cudnnGetTensorNdDescriptor, dnn, void *, int, int *, int *, int *, int *);
    FUNCTION(int, cudnnGetConvolutionForwardWorkspaceSize, dnn, void *, void *, void *, void *, void *, int, size_t *);
    FUNCTION(int, cudnnSetConvolutionMathType, dnn, void *, int);
    FUNCTION(const char *, cudnnGetErrorString, dnn, int);
    FUNCTION(size_t, cudnnGetVersion, dnn, void);
    int n, c, h, v, type, dims, size[4], step[4];
    size_t bytes = 1;
    long long before = used();

    CHECK_EQ(cudnnGetVersion() / 1000 % 90, strstr(name, ".8") ? 8 : 2);
    CHECK(!strcmp(cudnnGetErrorString(0), "CUDNN_STATUS_SUCCESS"));
    CHECK_EQ(cudnnCreate(&handle), 0);
    CHECK_EQ(used() - before, strstr(name, ".8") ? 0 : 132 * 192 + 4);
    CHECK_EQ(check_kind(-1, "pinned", "current_bytes"), strstr(name, ".8") ? 0 : 4);
    CHECK_EQ(cudnnCreateTensorDescriptor(&x), 0);
    CHECK_EQ(cudnnCreateTensorDescriptor(&y), 0);
    CHECK_EQ(cudnnCreateFilterDescriptor(&w), 0);
    CHECK_EQ(cudnnCreateConvolutionDescriptor(&convolution), 0);
    CHECK_EQ(cudnnSetTensor4dDescriptor(x, 1, 0, 2, 3, 224, 224), 0); /* NHWC */
    CHECK_EQ(cudnnGetTensorNdDescriptor(x, 4, &type, &dims, size, step), 0);
    CHECK(dims == 4 && size[1] == 3 && step[1] == 1 && step[3] == 3 && step[0] == 3 * 224 * 224);
    CHECK_EQ(cudnnSetTensor4dDescriptor(x, 0, 0, 2, 3, 224, 224), 0);
    CHECK_EQ(cudnnSetFilter4dDescriptor(w, 0, 0, 64, 3, 7, 7), 0);
    CHECK_EQ(cudnnSetConvolution2dDescriptor(convolution, 3, 3, 2, 2, 1, 1, 1, 0), 0);
    CHECK_EQ(cudnnGetConvolution2dForwardOutputDim(convolution, x, w, &n, &c, &h, &v), 0);
    CHECK(n == 2 && c == 64 && h == 112 && v == 112);
    CHECK_EQ(cudnnSetTensor4dDescriptor(y, 0, 0, n, c, h, v), 0);
    CHECK_EQ(cudnnGetConvolutionForwardWorkspaceSize(handle, x, w, convolution, y, 1, &bytes), 0);
    CHECK_EQ(bytes, 4 * (2 * 3 * 224 * 224 + 64 * 3 * 7 * 7 + 2 * 64 * 112 * 112) + 256);
    CHECK_EQ(cudnnSetConvolutionMathType(convolution, 3), 0); /* no TF32 */
    CHECK_EQ(cudnnGetConvolutionForwardWorkspaceSize(handle, x, w, convolution, y, 1, &bytes), 0);
    CHECK_EQ(bytes, 0);
    dnn_parts();
    dnn_graph(dnn);
    dnn_engines(dnn);
    dnn_product(dnn);
    dnn_workspaces(dnn);
    CHECK_EQ(cudnnDestroy(handle), 0);
    CHECK_EQ(used(), before);
}

static void report(const char *path)
{
    static char text[65536];
    FILE *file = fopen(path, "r");
    char line[256];
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[length] = '\0';
    if (file)
        fclose(file);
    snprintf(line, sizeof line, "%d\tlibcublas.so.12\tloaded\t", (int)getpid());
    CHECK(strstr(text, line) != NULL);
    snprintf(line, sizeof line, "%d\tlibcudnn.so.9\tassumed\tconvolutions: the workspace", (int)getpid());
    char *first = strstr(text, line);
    CHECK(first && !strstr(first + 1, line)); /* asked twice, said once */
}

int main(void)
{
    char path[] = "/tmp/sim-report-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    setenv("GPUPROF_STANDIN_REPORT", path, 1);
    setenv("GPUPROF_SIM", "gpu=h100-80g,contents=none", 1);
    check_begin(0);
    blas("libcublas.so.12", 32 * CHECK_MIB);
    blas("libcublas.so.13", 64 * CHECK_MIB + 131072 + 1024);
    blas_lt();
    solver();
    dnn("libcudnn.so.8");
    dnn("libcudnn.so.9");
    report(path);
    unlink(path);
    return check_done();
}
