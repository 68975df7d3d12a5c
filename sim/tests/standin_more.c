/* SPDX-License-Identifier: MIT
 * Selftest: stand-ins for cuFFT, cuRAND, cuSOLVER, cuSPARSE, cuSPARSELt, cuFile and the recurrent layers of cuDNN. */
#define _GNU_SOURCE
#include "standin_check.h"

static void fft(void)
{
    void *fft = library("libcufft.so.11");
    FUNCTION(int, cufftPlan1d, fft, int *, int, int, int);
    FUNCTION(int, cufftCreate, fft, int *);
    FUNCTION(int, cufftSetAutoAllocation, fft, int, int);
    FUNCTION(int, cufftMakePlanMany, fft, int, int, int *, int *, int, int, int *, int, int, int, int, size_t *);
    FUNCTION(int, cufftExecC2C, fft, int, void *, void *, int);
    FUNCTION(int, cufftDestroy, fft, int);
    int plan = 0, other = 0, n[2] = {32, 64};
    size_t bytes = 0;
    CUdeviceptr data = 0;
    float back = 1, one = 1;

    long long before = used();
    CHECK_EQ(cufftPlan1d(&plan, 1 << 20, 0x29, 2), 0);
    CHECK_EQ(used() - before, 16 * CHECK_MIB); /* a workspace of 2^20 complex numbers, twice */
    CHECK_EQ(cufftCreate(&other), 0);
    CHECK(other != plan);
    CHECK_EQ(cufftSetAutoAllocation(other, 0), 0);
    CHECK_EQ(cufftMakePlanMany(other, 2, n, NULL, 1, 0, NULL, 1, 0, 0x69, 10, &bytes), 0);
    CHECK_EQ(bytes, 0);              /* short lengths */
    CHECK(n[0] == 32 && n[1] == 64); /* an input */
    CHECK_OK(cuMemAlloc(&data, 4096));
    CHECK_OK(cuMemcpyHtoD(data, &one, sizeof one));
    CHECK_EQ(cufftExecC2C(other, (void *)data, (void *)data, 1), 0);
    CHECK_OK(cuMemcpyDtoH(&back, data, sizeof back));
    CHECK(back == 0);
    CHECK_EQ(cufftDestroy(other), 0);
    CHECK(cufftDestroy(other) != 0);
    CHECK_EQ(cufftDestroy(plan), 0);
    CHECK_OK(cuMemFree(data));
    CHECK_EQ(used(), before);
}

/* What PyTorch took for workspaces of cuFFT 12 on an H200, in blocks of 512 bytes, and the tables of plans. */
static void fft_spaces(void)
{
    enum { C2C = 0x29, R2C = 0x2a, C2R = 0x2c, Z2Z = 0x69 };
    static const struct {
        int n, batch, type;
        size_t bytes, tables;
    } rows[] = {
        {64, 65536, C2C, 0, 6967984},
        {1000, 4194, R2C, 0, 0},
        {4096, 4096, R2C, 0, 0},
        {1998, 4194, C2R, 67037184, 0},
        {1021, 4108, C2C, 0, 4335936 + 2 * 16384},
        {1021, 4108, R2C, 33554432, 4 * 16384},
        {2040, 4108, C2R, 33521664, 0},
        {3070, 2730, C2R, 33524736, 4 * 25000},
        {8192, 1023, C2R, 0, 0},
        {6561, 639, C2C, 0, 0},
        {9973, 420, C2C, 134400000, 2 * 160000},
        {65536, 64, C2C, 33554432, 0},
        {65536, 64, R2C, 16777216, 0},
        {1048576, 4, C2C, 33554432, 0},
        {65536, 64, Z2Z, 67108864, 0},
    };
    void *fft = library("libcufft.so.12");
    FUNCTION(int, cufftCreate, fft, int *);
    FUNCTION(int, cufftDestroy, fft, int);
    FUNCTION(int, cufftSetAutoAllocation, fft, int, int);
    FUNCTION(int, cufftMakePlanMany, fft, int, int, int *, int *, int, int, int *, int, int, int, int, size_t *);
    long long most = used();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int plan, n = rows[i].n;
        size_t bytes = 1;
        long long before = used();
        CHECK_EQ(cufftCreate(&plan), 0);
        CHECK_EQ(cufftSetAutoAllocation(plan, 0), 0);
        CHECK_EQ(cufftMakePlanMany(plan, 1, &n, NULL, 1, 0, NULL, 1, 0, rows[i].type, rows[i].batch, &bytes), 0);
        CHECK_EQ((bytes + 511) / 512 * 512, rows[i].bytes);
        CHECK_EQ(used() - before, rows[i].tables);
        CHECK_EQ(cufftDestroy(plan), 0);
    }
    CHECK_EQ(used() - most, 6967984 + 4335936);
}

static void random_numbers(void)
{
    void *rand = library("libcurand.so.10"), *generator = NULL;
    FUNCTION(int, curandCreateGeneratorHost, rand, void **, int);
    FUNCTION(int, curandGenerateUniformDouble, rand, void *, double *, size_t);
    FUNCTION(int, curandGetDirectionVectors32, rand, void **, int);
    double numbers[3] = {1, 2, 3};

    CHECK_EQ(curandCreateGeneratorHost(&generator, 100), 0);
    CHECK_EQ(curandGenerateUniformDouble(generator, numbers, 2), 0);
    CHECK(numbers[0] == 0 && numbers[1] == 0 && numbers[2] == 3);
    CHECK(curandGetDirectionVectors32(&generator, 101) != 0); /* must not be guessed */
}

static void solver(void)
{
    void *solver = library("libcusolver.so.11"), *handle = NULL;
    FUNCTION(int, cusolverDnCreate, solver, void **);
    FUNCTION(int, cusolverDnSgetrf_bufferSize, solver, void *, int, int, float *, int, int *);
    FUNCTION(int, cusolverSpDcsrlsvqr, solver, void *, int, int, void *, const double *, const int *, const int *,
             const double *, double, int, double *, int *);
    FUNCTION(int, cusolverSpDcsrlsvluHost, solver, void *);
    int lwork = 9, singularity = 9;

    CHECK_EQ(cusolverDnCreate(&handle), 0);
    CHECK_EQ(cusolverDnSgetrf_bufferSize(handle, 4, 4, NULL, 4, &lwork), 0);
    CHECK_EQ(lwork, 4 * 4 + 128);
    CHECK_EQ(cusolverSpDcsrlsvqr(handle, 1, 1, NULL, NULL, NULL, NULL, NULL, 0.5, 0, NULL, &singularity), 0);
    CHECK_EQ(singularity, -1);
    CHECK(cusolverSpDcsrlsvluHost(handle) != 0);
}

/* What PyTorch took for workspaces of cuSOLVER 12 on an H200, in blocks of 512 bytes. */
static void solver_spaces(void)
{
    static const struct {
        int n;
        size_t cholesky, qr, matrix, product, values, vectors;
    } rows[] = {{64, 512, 3146240, 148480, 493056, 53760, 29184},
                {256, 512, 3146240, 459776, 1574912, 596480, 301568},
                {512, 1536, 4194816, 852992, 3935232, 2238976, 1124864},
                {1024, 4608, 6291968, 1639424, 11801600, 8675840, 0},
                {2048, 16896, 10486272, 3212288, 40117248, 34157056, 0}};
    void *solver = library("libcusolver.so.12");
    FUNCTION(int, cusolverDnXpotrf_bufferSize, solver, void *, void *, int, int64_t, int, void *, int64_t, int,
             size_t *, size_t *);
    FUNCTION(int, cusolverDnXgeqrf_bufferSize, solver, void *, void *, int64_t, int64_t, int, void *, int64_t, int,
             void *, int, size_t *, size_t *);
    FUNCTION(int, cusolverDnXsyevd_bufferSize, solver, void *, void *, int, int, int64_t, int, void *, int64_t, int,
             void *, int, size_t *, size_t *);
    FUNCTION(int, cusolverDnSorgqr_bufferSize, solver, void *, int, int, int, float *, int, float *, int *);
    FUNCTION(int, cusolverDnSormqr_bufferSize, solver, void *, int, int, int, int, int, float *, int, float *, float *,
             int, int *);
    FUNCTION(int, cusolverDnSgesvdj_bufferSize, solver, void *, int, int, int, int, float *, int, float *, float *, int,
             float *, int, int *, void *);
    FUNCTION(int, cusolverDnSsyevj_bufferSize, solver, void *, int, int, int, float *, int, float *, int *, void *);
    size_t bytes[2] = {0, 9};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int n = rows[i].n, matrix = 0, product = 0, values = 0, vectors = 0;
        CHECK_EQ(cusolverDnXpotrf_bufferSize(NULL, NULL, 0, n, 0, NULL, n, 0, &bytes[0], &bytes[1]), 0);
        CHECK_EQ((bytes[0] + 511) / 512 * 512, rows[i].cholesky);
        CHECK_EQ(bytes[1], 0);
        CHECK_EQ(cusolverDnXgeqrf_bufferSize(NULL, NULL, n, n, 0, NULL, n, 0, NULL, 0, &bytes[0], &bytes[1]), 0);
        CHECK_EQ((bytes[0] + 511) / 512 * 512, rows[i].qr);
        CHECK_EQ(cusolverDnSorgqr_bufferSize(NULL, n, n, n, NULL, n, NULL, &matrix), 0);
        CHECK_EQ((4 * matrix + 511) / 512 * 512, rows[i].matrix);
        CHECK_EQ(cusolverDnSormqr_bufferSize(NULL, 0, 1, n, n, n, NULL, n, NULL, NULL, n, &product), 0);
        CHECK_EQ((4 * product + 511) / 512 * 512, rows[i].product);
        CHECK_EQ(cusolverDnSgesvdj_bufferSize(NULL, 1, 0, n, n, NULL, n, NULL, NULL, n, NULL, n, &values, NULL), 0);
        CHECK_EQ((4 * values + 511) / 512 * 512, rows[i].values);
        CHECK_EQ(cusolverDnSsyevj_bufferSize(NULL, 1, 0, n, NULL, n, NULL, &vectors, NULL), 0);
        CHECK(!rows[i].vectors || (4 * (size_t)vectors + 511) / 512 * 512 == rows[i].vectors);
    }
    CHECK_EQ(cusolverDnXsyevd_bufferSize(NULL, NULL, 1, 0, 1024, 0, NULL, 1024, 0, NULL, 0, &bytes[0], &bytes[1]), 0);
    CHECK_EQ((bytes[0] + 511) / 512 * 512, 17429504);
    size_t single = bytes[0];
    CHECK_EQ(cusolverDnXsyevd_bufferSize(NULL, NULL, 1, 0, 1024, 1, NULL, 1024, 1, NULL, 1, &bytes[0], &bytes[1]), 0);
    CHECK_EQ(bytes[0], 2 * single);
}

static void sparse(void)
{
    void *sparse = library("libcusparse.so.12"), *matrix = NULL, *info = NULL;
    FUNCTION(int, cusparseCreateCsr, sparse, void **, int64_t, int64_t, int64_t, void *, void *, void *, int, int, int,
             int);
    FUNCTION(int, cusparseCsrGet, sparse, void *, int64_t *, int64_t *, int64_t *, void **, void **, void **, int *,
             int *, int *, int *);
    FUNCTION(int, cusparseCsrSetPointers, sparse, void *, void *, void *, void *);
    FUNCTION(int, cusparseSpMatGetSize, sparse, void *, int64_t *, int64_t *, int64_t *);
    FUNCTION(int, cusparseSpMatGetValues, sparse, void *, void **);
    FUNCTION(int, cusparseCreateMatDescr, sparse, void **);
    FUNCTION(int, cusparseSetMatType, sparse, void *, int);
    FUNCTION(int, cusparseGetMatType, sparse, void *);
    FUNCTION(int, cusparseXcsrsv2_zeroPivot, library("libcusparse.so.11"), void *, void *, int *);
    FUNCTION(const char *, cusparseGetErrorString, sparse, int);
    int64_t rows = 0, columns = 0, elements = 0;
    void *at[3] = {0};
    int types[4] = {0}, position = 9;

    CHECK_EQ(cusparseCreateCsr(&matrix, 5, 6, 7, (void *)0x1000, (void *)0x2000, (void *)0x3000, 2, 3, 1, 0), 0);
    CHECK_EQ(cusparseSpMatGetSize(matrix, &rows, &columns, &elements), 0);
    CHECK(rows == 5 && columns == 6 && elements == 7);
    CHECK_EQ(cusparseCsrGet(matrix, &rows, &columns, &elements, &at[0], &at[1], &at[2], &types[0], &types[1], &types[2],
                            &types[3]),
             0);
    CHECK(at[1] == (void *)0x2000 && types[0] == 2 && types[1] == 3 && types[2] == 1 && types[3] == 0);
    CHECK_EQ(cusparseCsrSetPointers(matrix, (void *)0x4000, (void *)0x5000, (void *)0x6000), 0);
    CHECK_EQ(cusparseSpMatGetValues(matrix, &at[0]), 0);
    CHECK(at[0] == (void *)0x6000);
    CHECK_EQ(cusparseCreateMatDescr(&info), 0);
    CHECK_EQ(cusparseSetMatType(info, 3), 0);
    CHECK_EQ(cusparseGetMatType(info), 3);
    CHECK_EQ(cusparseXcsrsv2_zeroPivot(NULL, NULL, &position), 0);
    CHECK_EQ(position, -1);
    CHECK(cusparseGetErrorString(0) != NULL);
}

static void sparse_lt(void)
{
    void *lt = library("libcusparseLt.so.0");
    FUNCTION(int, cusparseLtStructuredDescriptorInit, lt, void *, void *, int64_t, int64_t, int64_t, unsigned, int, int,
             int);
    FUNCTION(int, cusparseLtSpMMACompressedSize2, lt, void *, void *, size_t *, size_t *);
    char handle[512], matrix[512];
    size_t bytes = 0, buffer = 9;

    CHECK_EQ(cusparseLtStructuredDescriptorInit(handle, matrix, 128, 64, 64, 16, 2, 1, 0), 0);
    CHECK_EQ(cusparseLtSpMMACompressedSize2(handle, matrix, &bytes, &buffer), 0);
    CHECK_EQ(bytes, 128 * 64 * 2 * 9 / 16);
}

/* A file through device memory; its bytes come back. */
static void file(void)
{
    void *library_ = library("libcufile.so.0"), *handle = NULL;
    FUNCTION(int64_t, cuFileHandleRegister, library_, void **, void *);
    FUNCTION(ssize_t, cuFileRead, library_, void *, void *, size_t, off_t, off_t);
    FUNCTION(ssize_t, cuFileWrite, library_, void *, const void *, size_t, off_t, off_t);
    FUNCTION(void, cuFileHandleDeregister, library_, void *);
    struct {
        int kind;
        union {
            int fd;
            void *handle;
        };
        const void *operations;
    } descriptor = {.kind = 1};
    char path[] = "/tmp/sim-file-XXXXXX", back[8] = "";
    CUdeviceptr memory = 0;

    descriptor.fd = mkstemp(path);
    CHECK(descriptor.fd >= 0 && write(descriptor.fd, "0123456789", 10) == 10);
    unlink(path);
    CHECK_OK(cuMemAlloc(&memory, 4096));
    CHECK_EQ(cuFileHandleRegister(&handle, &descriptor), 0);
    CHECK_EQ(cuFileRead(handle, (void *)memory, 100, 3, 16), 7);
    CHECK_OK(cuMemcpyDtoH(back, memory + 16, 7));
    CHECK(!memcmp(back, "3456789", 7));
    CHECK_EQ(cuFileWrite(handle, (void *)memory, 4, 20, 17), 4);
    CHECK_EQ(pread(descriptor.fd, back, 8, 20), 4);
    CHECK(!memcmp(back, "4567", 4));
    cuFileHandleDeregister(handle);
    close(descriptor.fd);
    CHECK_OK(cuMemFree(memory));
}

/* Weights lie where the answers say: every matrix and every bias has bytes of its own, and all lie within the size. */
static void recurrent(void)
{
    enum { INPUT = 5, HIDDEN = 7, LAYERS = 2, DIRECTIONS = 2, GATES = 4 };
    void *dnn = library("libcudnn.so.9"), *rnn = NULL, *data = NULL, *m = NULL, *b = NULL;
    FUNCTION(int, cudnnCreateRNNDescriptor, dnn, void **);
    FUNCTION(int, cudnnCreateRNNDataDescriptor, dnn, void **);
    FUNCTION(int, cudnnCreateTensorDescriptor, dnn, void **);
    FUNCTION(int, cudnnSetRNNDescriptor_v8, dnn, void *, int, int, int, int, int, int, int, int, int, int, int, int,
             void *, unsigned);
    FUNCTION(int, cudnnSetRNNDataDescriptor, dnn, void *, int, int, int, int, int, const int *, void *);
    FUNCTION(int, cudnnGetRNNWeightSpaceSize, dnn, void *, void *, size_t *);
    FUNCTION(int, cudnnGetRNNWeightParams, dnn, void *, void *, int, size_t, const void *, int, void *, void **, void *,
             void **);
    FUNCTION(int, cudnnGetRNNTempSpaceSizes, dnn, void *, void *, int, void *, size_t *, size_t *);
    FUNCTION(int, cudnnGetTensorNdDescriptor, dnn, void *, int, int *, int *, int *, int *);
    static char weights[1 << 16];
    size_t bytes = 0, covered = 0, workspace = 0, reserve = 9;

    CHECK_EQ(cudnnCreateRNNDescriptor(&rnn), 0);
    CHECK_EQ(cudnnCreateRNNDataDescriptor(&data), 0);
    CHECK_EQ(cudnnCreateTensorDescriptor(&m), 0);
    CHECK_EQ(cudnnCreateTensorDescriptor(&b), 0);
    CHECK_EQ(cudnnSetRNNDescriptor_v8(rnn, 0, 2, 2, 1, 0, 0, 0, 0, INPUT, HIDDEN, HIDDEN, LAYERS, NULL, 0), 0);
    CHECK_EQ(cudnnGetRNNWeightSpaceSize(NULL, rnn, &bytes), 0);
    size_t first = GATES * HIDDEN * (INPUT + HIDDEN + 2), second = GATES * HIDDEN * (DIRECTIONS * HIDDEN + HIDDEN + 2);
    CHECK_EQ(bytes, 4 * DIRECTIONS * (first + second));
    for (int layer = 0; layer < LAYERS * DIRECTIONS; layer++)
        for (int id = 0; id < 2 * GATES; id++) {
            void *at[2] = {0};
            CHECK_EQ(cudnnGetRNNWeightParams(NULL, rnn, layer, bytes, weights, id, m, &at[0], b, &at[1]), 0);
            for (int i = 0; i < 2; i++) {
                int type, dims, size[3] = {0}, step[3];
                CHECK_EQ(cudnnGetTensorNdDescriptor(i ? b : m, 3, &type, &dims, size, step), 0);
                size_t part = 4u * (size_t)size[1] * (size_t)size[2], from = (size_t)((char *)at[i] - weights);
                CHECK(from + part <= bytes && !memchr(weights + from, 1, part));
                memset(weights + from, 1, part);
                covered += part;
            }
        }
    CHECK_EQ(covered, bytes);
    CHECK_EQ(cudnnSetRNNDataDescriptor(data, 0, 0, 10, 3, INPUT, NULL, NULL), 0);
    CHECK_EQ(cudnnGetRNNTempSpaceSizes(NULL, rnn, 0, data, &workspace, &reserve), 0);
    CHECK(workspace > 0 && reserve == 0);
}

/* What PyTorch took for cuDNN 9's recurrent layers on an H200, in blocks of 512 bytes. */
static void recurrent_spaces(void)
{
    enum { RELU, TANH, LSTM, GRU, HALF = 2 };
    static const struct {
        int cell, batch, steps, input, hidden, layers, type;
        size_t evaluation, training, reserve;
    } rows[] = {
        {LSTM, 64, 16, 256, 512, 1, 0, 27526144, 27526144, 10486272},
        {LSTM, 64, 64, 256, 512, 2, 0, 80217088, 80217088, 92275200},
        {LSTM, 64, 16, 256, 512, 2, HALF, 31196160, 31196160, 11534848},
        {LSTM, 32, 100, 512, 1024, 3, HALF, 109314560, 109314560, 111411712},
        {GRU, 64, 16, 256, 512, 2, 0, 38536192, 39584768, 27263488},
        {GRU, 64, 64, 256, 512, 2, 0, 66847744, 66847744, 109052416},
        {GRU, 32, 100, 512, 1024, 3, HALF, 90243584, 90243584, 131072512},
        {TANH, 64, 16, 256, 512, 1, 0, 15598592, 21103616, 2097664},
        {TANH, 64, 64, 256, 512, 2, 0, 42206208, 57410560, 25166336},
        {TANH, 8, 64, 1024, 128, 1, 0, 12665344, 18440704, 262656},
        {LSTM, 8, 16, 1024, 128, 1, 0, 12681728, 13353472, 328192},
    };
    void *dnn = library("libcudnn.so.9"), *rnn = NULL, *data = NULL;
    FUNCTION(int, cudnnCreateRNNDescriptor, dnn, void **);
    FUNCTION(int, cudnnCreateRNNDataDescriptor, dnn, void **);
    FUNCTION(int, cudnnSetRNNDescriptor_v8, dnn, void *, int, int, int, int, int, int, int, int, int, int, int, int,
             void *, unsigned);
    FUNCTION(int, cudnnSetRNNDataDescriptor, dnn, void *, int, int, int, int, int, const int *, void *);
    FUNCTION(int, cudnnGetRNNTempSpaceSizes, dnn, void *, void *, int, void *, size_t *, size_t *);
    CHECK_EQ(cudnnCreateRNNDescriptor(&rnn), 0);
    CHECK_EQ(cudnnCreateRNNDataDescriptor(&data), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t evaluation = 0, training = 0, reserve = 0;
        CHECK_EQ(cudnnSetRNNDescriptor_v8(rnn, 0, rows[i].cell, 2, 0, 0, rows[i].type, 0, 0, rows[i].input,
                                          rows[i].hidden, rows[i].hidden, rows[i].layers, NULL, 0),
                 0);
        CHECK_EQ(
            cudnnSetRNNDataDescriptor(data, rows[i].type, 0, rows[i].steps, rows[i].batch, rows[i].input, NULL, NULL),
            0);
        CHECK_EQ(cudnnGetRNNTempSpaceSizes(NULL, rnn, 0, data, &evaluation, NULL), 0);
        CHECK_EQ(cudnnGetRNNTempSpaceSizes(NULL, rnn, 1, data, &training, &reserve), 0);
        CHECK_EQ((reserve + 511) / 512 * 512, rows[i].reserve);
        long long most = rows[i].batch < 16 ? 16384 : 0;
        CHECK(llabs((long long)(evaluation + 511) / 512 * 512 - (long long)rows[i].evaluation) <= most);
        CHECK(llabs((long long)(training + 511) / 512 * 512 - (long long)rows[i].training) <= most);
    }
}

int main(void)
{
    setenv("GPUPROF_SIM", "gpu=a100-80g,contents=none", 1);
    check_begin(0);
    fft();
    fft_spaces();
    random_numbers();
    solver();
    solver_spaces();
    sparse();
    sparse_lt();
    file();
    recurrent();
    recurrent_spaces();
    return check_done();
}
