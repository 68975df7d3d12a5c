/* SPDX-License-Identifier: MIT
 * Makes the allocations of a training loop (runtime API): permanent parameters, gradients and
 * optimizer state, input batches that arrive on a separate stream through pinned buffers,
 * activations that grow and shrink in the forward and backward pass, a workspace per layer, periodic
 * checkpoints.  Sizes follow the device's free memory.  The first bytes of each buffer are written.
 *
 * train_rt [--steps N] [--seconds S] [--pace MILLISECONDS]     prints one line with the result */
#include <cuda_runtime_api.h>

#include "example.h"

#define LAYERS           12
#define CHECKPOINT_STEPS 32
#define TOUCHED          4096u /* bytes of each buffer that are written: cheap even if memory is slow */

struct layer {
    void *weights, *gradients, *moments[2];
    void *activations;
};

struct model {
    struct layer layers[LAYERS];
    size_t weight_bytes, activation_bytes, batch_bytes;
    void *batch[2], *batch_on_host[2];
    cudaStream_t compute, copy;
    cudaEvent_t arrived[2], consumed[2];
};

static size_t round_up(size_t bytes)
{
    return (bytes + 511) & ~(size_t)511;
}

static void *buffer(struct model *model, size_t bytes)
{
    void *made;

    CHECK_RT(cudaMalloc(&made, bytes));
    CHECK_RT(cudaMemsetAsync(made, 0, bytes < TOUCHED ? bytes : TOUCHED, model->compute));
    return made;
}

/* Half of the free memory: two thirds for parameters, one third for the largest activations. */
static void model_create(struct model *model)
{
    size_t free_bytes, total_bytes, budget;

    CHECK_RT(cudaMemGetInfo(&free_bytes, &total_bytes));
    budget = free_bytes / 2;
    model->weight_bytes = round_up(budget * 2 / 3 / (LAYERS * 4));
    model->activation_bytes = round_up(budget / 3 / (LAYERS * 2));
    model->batch_bytes = round_up(budget / 256);
    CHECK_RT(cudaStreamCreateWithFlags(&model->compute, cudaStreamNonBlocking));
    CHECK_RT(cudaStreamCreateWithFlags(&model->copy, cudaStreamNonBlocking));
    for (int i = 0; i < LAYERS; i++) {
        struct layer *layer = &model->layers[i];

        layer->weights = buffer(model, model->weight_bytes);
        layer->gradients = buffer(model, model->weight_bytes);
        layer->moments[0] = buffer(model, model->weight_bytes);
        layer->moments[1] = buffer(model, model->weight_bytes);
    }
    for (int i = 0; i < 2; i++) {
        model->batch[i] = buffer(model, model->batch_bytes);
        CHECK_RT(cudaHostAlloc(&model->batch_on_host[i], TOUCHED, cudaHostAllocDefault));
        memset(model->batch_on_host[i], i + 1, TOUCHED);
        CHECK_RT(cudaEventCreateWithFlags(&model->arrived[i], cudaEventDisableTiming));
        CHECK_RT(cudaEventCreateWithFlags(&model->consumed[i], cudaEventDisableTiming));
    }
    CHECK_RT(cudaStreamSynchronize(model->compute));
}

/* Copies the next batch while the last one is in use: two buffers, two events each way. */
static void batch_load(struct model *model, int slot)
{
    CHECK_RT(cudaStreamWaitEvent(model->copy, model->consumed[slot], 0));
    CHECK_RT(
        cudaMemcpyAsync(model->batch[slot], model->batch_on_host[slot], TOUCHED, cudaMemcpyHostToDevice, model->copy));
    CHECK_RT(cudaEventRecord(model->arrived[slot], model->copy));
}

static void forward(struct model *model, int slot, uint64_t *random)
{
    CHECK_RT(cudaStreamWaitEvent(model->compute, model->arrived[slot], 0));
    for (int i = 0; i < LAYERS; i++) {
        /* Sequence lengths vary from step to step: 1 to 2 times the base. */
        size_t bytes = model->activation_bytes + model->activation_bytes / 16 * (example_random(random) % 17);
        void *input = i ? model->layers[i - 1].activations : model->batch[slot];

        model->layers[i].activations = buffer(model, bytes);
        CHECK_RT(
            cudaMemcpyAsync(model->layers[i].activations, input, TOUCHED, cudaMemcpyDeviceToDevice, model->compute));
    }
    CHECK_RT(cudaEventRecord(model->consumed[slot], model->compute));
}

static void backward(struct model *model)
{
    for (int i = LAYERS; i-- > 0;) {
        void *workspace = buffer(model, model->activation_bytes / 2);

        CHECK_RT(cudaMemcpyAsync(workspace, model->layers[i].activations, TOUCHED, cudaMemcpyDeviceToDevice,
                                 model->compute));
        CHECK_RT(
            cudaMemcpyAsync(model->layers[i].gradients, workspace, TOUCHED, cudaMemcpyDeviceToDevice, model->compute));
        CHECK_RT(cudaStreamSynchronize(model->compute));
        CHECK_RT(cudaFree(workspace));
        CHECK_RT(cudaFree(model->layers[i].activations));
        model->layers[i].activations = NULL;
    }
}

static void optimize(struct model *model)
{
    for (int i = 0; i < LAYERS; i++) {
        struct layer *layer = &model->layers[i];

        CHECK_RT(
            cudaMemcpyAsync(layer->moments[0], layer->gradients, TOUCHED, cudaMemcpyDeviceToDevice, model->compute));
        CHECK_RT(cudaMemcpyAsync(layer->weights, layer->moments[0], TOUCHED, cudaMemcpyDeviceToDevice, model->compute));
    }
    CHECK_RT(cudaStreamSynchronize(model->compute));
}

static void checkpoint(struct model *model)
{
    void *saved;

    CHECK_RT(cudaMallocHost(&saved, LAYERS * TOUCHED));
    for (int i = 0; i < LAYERS; i++)
        CHECK_RT(cudaMemcpyAsync((char *)saved + i * TOUCHED, model->layers[i].weights, TOUCHED, cudaMemcpyDeviceToHost,
                                 model->compute));
    CHECK_RT(cudaStreamSynchronize(model->compute));
    CHECK_RT(cudaFreeHost(saved));
}

static void model_destroy(struct model *model)
{
    CHECK_RT(cudaDeviceSynchronize());
    for (int i = 0; i < LAYERS; i++) {
        CHECK_RT(cudaFree(model->layers[i].weights));
        CHECK_RT(cudaFree(model->layers[i].gradients));
        CHECK_RT(cudaFree(model->layers[i].moments[0]));
        CHECK_RT(cudaFree(model->layers[i].moments[1]));
    }
    for (int i = 0; i < 2; i++) {
        CHECK_RT(cudaFree(model->batch[i]));
        CHECK_RT(cudaFreeHost(model->batch_on_host[i]));
        CHECK_RT(cudaEventDestroy(model->arrived[i]));
        CHECK_RT(cudaEventDestroy(model->consumed[i]));
    }
    CHECK_RT(cudaStreamDestroy(model->compute));
    CHECK_RT(cudaStreamDestroy(model->copy));
}

int main(int count, char **arguments)
{
    struct example_limits limits = example_arguments(count, arguments, 10, 10);
    struct model model = {0};
    uint64_t random = 1;
    long step = 0;

    model_create(&model);
    batch_load(&model, 0);
    for (; example_goes_on(&limits, step); step++) {
        batch_load(&model, (step + 1) % 2);
        forward(&model, step % 2, &random);
        backward(&model);
        optimize(&model);
        if (step % CHECKPOINT_STEPS == CHECKPOINT_STEPS - 1)
            checkpoint(&model);
        example_pause(&limits);
    }
    model_destroy(&model);
    printf("train: %ld steps of %d layers, %zu MiB of parameters\n", step, LAYERS, LAYERS * model.weight_bytes >> 20);
    return 0;
}
