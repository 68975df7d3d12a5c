/* SPDX-License-Identifier: MIT
 * Recurrent layers of cuDNN: where the weights of each layer lie, and the sizes of what a program
 * allocates for them.  All matrices come first, layer by layer, then all biases. */
#include "cudnn.h"

/* Positions among the arguments of cudnnSetRNNDescriptor_v8 and of cudnnSetRNNDataDescriptor. */
enum { CELL = 3, BIAS = 4, DIRECTION = 5, DATA_TYPE = 7, INPUT = 10, HIDDEN = 11, PROJECTION = 12, LAYERS = 13 };
enum { MOST_STEPS = 4, BATCH = 5 };
enum { LSTM = 2, GRU = 3 };

KEPT(cudnnSetRNNDescriptor_v8)
TOLD(cudnnGetRNNDescriptor_v8, "iiiiiiiiiiiili")
KEPT(cudnnSetRNNDataDescriptor)
TOLD(cudnnGetRNNDataDescriptor, "iiiii")

struct rnn {
    int cell, bias, directions, type, layers, gates;
    size_t input, hidden, output; /* output: of one direction */
};

static struct rnn rnn_of(word descriptor)
{
    const struct standin_object *object = standin_object(descriptor);
    struct rnn rnn = {.cell = (int)standin_kept(object, CELL),
                      .bias = (int)standin_kept(object, BIAS),
                      .directions = standin_kept(object, DIRECTION) & 1 ? 2 : 1,
                      .type = (int)standin_kept(object, DATA_TYPE),
                      .layers = (int)standin_kept(object, LAYERS),
                      .input = (uint32_t)standin_kept(object, INPUT),
                      .hidden = (uint32_t)standin_kept(object, HIDDEN),
                      .output = (uint32_t)standin_kept(object, PROJECTION)};
    rnn.gates = rnn.cell == LSTM ? 4 : rnn.cell == GRU ? 3 : 1;
    if (!rnn.output)
        rnn.output = rnn.hidden;
    return rnn;
}

/* Matrix `id` of a layer in one direction: those for the input, for the state, and the projection. */
static size_t rnn_matrix(const struct rnn *rnn, int layer, int id, size_t *rows, size_t *columns)
{
    *rows = rnn->hidden;
    *columns = layer < rnn->directions ? rnn->input : rnn->output * (size_t)rnn->directions;
    if (id >= rnn->gates)
        *columns = rnn->output;
    if (id == 2 * rnn->gates) {
        *rows = rnn->output == rnn->hidden ? 0 : rnn->output;
        *columns = rnn->hidden;
    }
    return *rows * *columns;
}

/* How many biases of a layer come before `id`, and whether `id` has one. */
static int rnn_bias(const struct rnn *rnn, int id, bool *has)
{
    enum { INPUT_BIAS = 1, BOTH = 2, STATE_BIAS = 3 };
    bool first = rnn->bias == INPUT_BIAS || rnn->bias == BOTH, second = rnn->bias == STATE_BIAS || rnn->bias == BOTH;
    int gate = id % rnn->gates, state = id >= rnn->gates;
    *has = id < 2 * rnn->gates && (state ? second : first);
    return state ? (first ? rnn->gates : 0) + gate : gate;
}

static size_t rnn_matrices(const struct rnn *rnn, int layer, int id)
{
    size_t sum = 0, rows, columns;
    for (int i = 0; i <= layer; i++)
        for (int j = 0; j <= 2 * rnn->gates && (i < layer || j < id); j++)
            sum += rnn_matrix(rnn, i, j, &rows, &columns);
    return sum;
}

static size_t rnn_biases(const struct rnn *rnn)
{
    int each = rnn->bias == 0 ? 0 : rnn->bias == 2 ? 2 : 1;
    return (size_t)(each * rnn->gates) * rnn->hidden;
}

EXPORT int cudnnGetRNNWeightSpaceSize(void *handle, word descriptor, size_t *bytes);
EXPORT int cudnnGetRNNWeightSpaceSize(void *handle, word descriptor, size_t *bytes)
{
    struct rnn rnn = rnn_of(descriptor);
    int layers = rnn.layers * rnn.directions;
    (void)handle;
    *bytes = (rnn_matrices(&rnn, layers, 0) + (size_t)layers * rnn_biases(&rnn)) * cudnn_element(rnn.type);
    return 0;
}

static int rnn_tensor(word descriptor, int type, size_t rows, size_t columns)
{
    return cudnn_tensor_set(descriptor, type, (const int[]){1, (int)rows, (int)columns});
}

EXPORT int cudnnGetRNNWeightParams(void *handle, word descriptor, int layer, size_t bytes, word weights, int id,
                                   word matrix, word *matrix_at, word bias, word *bias_at);
EXPORT int cudnnGetRNNWeightParams(void *handle, word descriptor, int layer, size_t bytes, word weights, int id,
                                   word matrix, word *matrix_at, word bias, word *bias_at)
{
    struct rnn rnn = rnn_of(descriptor);
    size_t element = cudnn_element(rnn.type), rows, columns;
    bool has;
    (void)handle;
    (void)bytes;
    if (layer < 0 || layer >= rnn.layers * rnn.directions || id < 0 || id > 2 * rnn.gates)
        return STANDIN_BAD_PARAM;
    size_t size = rnn_matrix(&rnn, layer, id, &rows, &columns);
    int before = rnn_bias(&rnn, id, &has);
    size_t biases = rnn_matrices(&rnn, rnn.layers * rnn.directions, 0) + (size_t)layer * rnn_biases(&rnn) +
                    (size_t)before * rnn.hidden;
    if (matrix_at)
        *matrix_at = size ? weights + rnn_matrices(&rnn, layer, id) * element : 0;
    if (bias_at)
        *bias_at = has ? weights + biases * element : 0;
    if (size && rnn_tensor(matrix, rnn.type, rows, columns) != 0)
        return STANDIN_NO_MEMORY;
    return has ? rnn_tensor(bias, rnn.type, rnn.hidden, 1) : 0;
}

/* ---- workspace and reserve ----------------------------------------------------------------------------------------- */

/* Rules that explain what cuDNN 9 took on an H200, in units of a state, the hidden numbers of a batch: LSTM,
 * GRU and plain networks of one to four layers.  The reserve is known to the byte: for each step, gates and
 * cells of each layer, and the output between two layers.  So is the workspace in evaluation for batches of
 * 16 and more in one direction; else, and in training, it is within a tenth. */
static size_t rnn_reserve(const struct rnn *rnn, size_t steps, size_t state)
{
    size_t kept = rnn->cell == LSTM ? 5 : rnn->cell == GRU ? 6 : 1, layers = (size_t)rnn->layers;
    return steps * state * (size_t)rnn->directions * ((kept + 1) * layers - 1) + 512;
}

/* A block of 8 MiB for each layer, a copy of the matrices, states by step and by layer, and three numbers for
 * each sequence. */
static size_t rnn_workspace(const struct rnn *rnn, size_t steps, size_t batch, size_t state, bool training)
{
    const size_t element = cudnn_element(rnn->type), layer = (size_t)8 << 20, lengths = 12 * batch;
    size_t layers = (size_t)(rnn->layers * rnn->directions), both = rnn->directions == 2;
    size_t gates = (size_t)(rnn->gates * rnn->directions) * (batch < 16 ? 5 : 1);
    size_t each = rnn->cell == LSTM ? 10 : rnn->cell == GRU ? 5 : 3;
    size_t input = batch * rnn->input * element * (both ? 2 : 1);
    size_t bytes = steps * ((gates + (both ? 6 : 1)) * state + input) + layers * each * state;
    if (training) {
        size_t back = steps * (both ? 12 : 4) * state + (16 + (both ? 7 : 5) * layers) * state;
        if (batch < 16)
            back = steps * ((11 + (size_t)(rnn->cell == LSTM ? 4 : 1)) * state + 3 * input) +
                   (size_t)(rnn->cell == LSTM ? 12 : 6) * layers * state;
        bytes = back > bytes ? back : bytes;
    }
    return layers * layer + rnn_matrices(rnn, (int)layers, 0) * element + bytes + lengths;
}

EXPORT int cudnnGetRNNTempSpaceSizes(void *handle, word descriptor, int training, word data, size_t *workspace,
                                     size_t *reserve);
EXPORT int cudnnGetRNNTempSpaceSizes(void *handle, word descriptor, int training, word data, size_t *workspace,
                                     size_t *reserve)
{
    struct rnn rnn = rnn_of(descriptor);
    const struct standin_object *object = standin_object(data);
    size_t steps = (uint32_t)standin_kept(object, MOST_STEPS), batch = (uint32_t)standin_kept(object, BATCH);
    size_t state = batch * rnn.hidden * cudnn_element(rnn.type);
    (void)handle;
    standin_assumed("recurrent layers: workspace and reserve that rules of cuDNN 9 on capability 9.0 give");
    if (workspace)
        *workspace = rnn_workspace(&rnn, steps, batch, state, training);
    if (reserve)
        *reserve = training ? rnn_reserve(&rnn, steps, state) : 0;
    return 0;
}
