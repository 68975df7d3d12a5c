/* SPDX-License-Identifier: MIT
 * Selftest of the simulated runtime with two devices: the thread's own device, memory on each, peer copies, a reset of
 * one that leaves the other alone. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>

#include "check.h"

static void *fresh_thread(void *device)
{
    CHECK_EQ(cudaGetDevice(device), cudaSuccess);
    return NULL;
}

static int device_of(void *pointer)
{
    struct cudaPointerAttributes attributes = {.device = -9};

    CHECK_EQ(cudaPointerGetAttributes(&attributes, pointer), cudaSuccess);
    return attributes.device;
}

int main(void)
{
    char text[64] = "from the second device", back[64] = "";
    int count = 0, device = -1, possible = 0;
    void *first = NULL, *second = NULL;
    pthread_t thread;
    CUcontext context = NULL;
    CUdevice driver_device = -1;

    setenv("GPUPROF_SIM", "devices=2", 1);
    CHECK_EQ(cudaGetDeviceCount(&count), cudaSuccess);
    CHECK_EQ(count, 2);
    CHECK_EQ(cudaMalloc(&first, 4096), cudaSuccess);
    CHECK_EQ(cudaSetDevice(1), cudaSuccess);
    CHECK_EQ(cudaMalloc(&second, 4096), cudaSuccess);
    CHECK_EQ(device_of(first), 0);
    CHECK_EQ(device_of(second), 1);
    CHECK_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
    CHECK_EQ(cudaGetDevice(&device), cudaSuccess);
    CHECK_EQ(device, 1);
    pthread_create(&thread, NULL, fresh_thread, &device);
    pthread_join(thread, NULL);
    CHECK_EQ(device, 0);
    /* The driver API agrees on which is current. */
    CHECK_EQ(cuCtxGetDevice(&driver_device), CUDA_SUCCESS);
    CHECK_EQ(driver_device, 1);
    CHECK_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    CHECK_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    CHECK_EQ(cudaGetDevice(&device), cudaSuccess);
    CHECK_EQ(device, 0);
    CHECK_EQ(cudaSetDevice(1), cudaSuccess);
    CHECK_EQ(cudaDeviceCanAccessPeer(&possible, 1, 0), cudaSuccess);
    if (possible) {
        CHECK_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
        CHECK_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
        CHECK_EQ(cudaDeviceDisablePeerAccess(0), cudaSuccess);
    }
    CHECK_EQ(cudaMemcpy(second, text, sizeof text, cudaMemcpyHostToDevice), cudaSuccess);
    CHECK_EQ(cudaMemcpyPeer(first, 0, second, 1, sizeof text), cudaSuccess);
    CHECK_EQ(cudaDeviceReset(), cudaSuccess);
    CHECK_EQ(cudaGetDevice(&device), cudaSuccess);
    CHECK_EQ(device, 1);
    CHECK_EQ(cudaMemcpy(back, first, sizeof text, cudaMemcpyDeviceToHost), cudaSuccess);
    CHECK(!strcmp(text, back));
    CHECK_EQ(cudaFree(second), cudaErrorInvalidValue);
    CHECK_EQ(cudaFree(first), cudaSuccess);
    return check_done();
}
