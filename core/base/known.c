/* SPDX-License-Identifier: MIT
 * known.c: which libraries have an owner that people know (known.h). */
#include "base/known.h"

#include "base/compiler.h"
#include <string.h>

/* By the start of the file name; the first match counts. Sonames: NVIDIA's packages, and the wheels
 * of the frameworks. */
static const struct {
    const char *prefix, *owner;
} known[] = {
    {"libgpuprof", NULL},
    {"libcuda.so", NULL},
    {"libcudart.so", NULL},
    {"libcudart-", NULL}, /* wheels before CUDA 11 put a hash into the name */
    {"libcupti.so", NULL},
    {"libnvidia-", NULL},
    {"libcudadebugger", NULL},
    {"linux-vdso", NULL},
    {"ld-linux", NULL},
    {"libc.so", NULL},
    {"libc-", NULL},
    {"libpthread", NULL},
    {"libdl.so", NULL},
    {"libdl-", NULL},
    {"libstdc++", NULL},
    {"libgcc_s", NULL},
    {"libffi", NULL},
    {"_ctypes", NULL},
    {"libpython", "program"}, /* the interpreter calls the driver through ctypes: the script does */
    {"libc10", "pytorch"},
    {"libtorch", "pytorch"},
    {"libcaffe2", "pytorch"},
    {"libnccl", "nccl"},
    {"libnvshmem", "nvshmem"},
    {"libcublas", "cublas"},
    {"libcudnn", "cudnn"},
    {"libcufft", "cufft"},
    {"libcusparse", "cusparse"},
    {"libcusolver", "cusolver"},
    {"libcutensor", "cutensor"},
    {"libcurand", "curand"},
    {"libnpp", "npp"},
    {"libnvjpeg", "nvjpeg"},
    {"libnvinfer", "tensorrt"},
    {"libtriton", "triton"},
    {"cuda_utils", "triton"}, /* Triton compiles its launcher under this name */
    {"librmm", "rmm"},
    {"libcudf", "cudf"},
    {"libtensorflow", "tensorflow"},
    {"_pywrap_tensorflow", "tensorflow"},
    {"xla_cuda_plugin", "xla"},
    {"xla_extension", "xla"},
    {"libjax", "xla"},
    {"libonnxruntime", "onnxruntime"},
    {"onnxruntime", "onnxruntime"},
    {"libpaddle", "paddle"},
    {"libggml", "ggml"},
    {"libllama", "ggml"},
};

/*
 * By a folder in the path: extension modules have general names. "rmm" is short enough to be the folder of any project,
 * so only the one that Python installs counts, or the one of RMM's own modules inside its package.
 */
static const struct {
    const char *folder, *owner;
} packages[] = {
    {"/cupy/", "cupy"},     {"/cupy_backends/", "cupy"}, {"/pycuda/", "pycuda"},
    {"/torch/", "pytorch"}, {"-packages/rmm/", "rmm"},   {"/rmm/pylibrmm/", "rmm"},
    {"/vllm/", "vllm"},     {"/triton/", "triton"},      {"/cuda/bindings/", "cuda-python"},
};

const char *gp_known_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

const char *gp_known_owner(const char *path)
{
    const char *base = gp_known_base(path);
    if (!*path)
        return "program";
    for (unsigned i = 0; i < GP_COUNT(known); i++)
        if (strncmp(base, known[i].prefix, strlen(known[i].prefix)) == 0)
            return known[i].owner;
    for (unsigned i = 0; i < GP_COUNT(packages); i++)
        if (strstr(path, packages[i].folder))
            return packages[i].owner;
    return "";
}

void gp_known_name(const char *base, char *name, size_t bytes)
{
    size_t length = strnlen(base, bytes - 1);
    memcpy(name, base, length);
    name[length] = '\0';
    char *end = strstr(name, ".so");
    if (end)
        end[3] = '\0';
}
