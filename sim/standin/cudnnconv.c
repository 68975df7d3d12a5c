/* SPDX-License-Identifier: MIT
 * The workspace of a convolution, by rules that explain what cuDNN 9 took on an H200 (capability 9.0) for
 * 16 layers in 6 forms, each in three directions.  Kernels that use tensor cores want the channels last and
 * a multiple of some count: other tensors are copied into the workspace first.  The gradient of the filter
 * is summed by parts, each a filter in fp32.  Copies are known to the byte, the number of parts within a
 * factor of two. */
#include "cudnn.h"

enum { HALF = 2, BFLOAT16 = 9 };
enum { SPARE = 256 }; /* tensors in a workspace are aligned */

struct layer {
    bool half, bfloat16, exact, last, strided;
    int64_t batch, in, out, groups; /* channels */
    int64_t image, result, taps;    /* elements of a channel, and of a filter's */
    int64_t height, rows;           /* of the image and the result; of a filter: */
    int64_t reach;
    size_t x, w, y; /* bytes */
};

static int64_t elements(const struct cudnn_tensor *tensor)
{
    int64_t product = 1;
    for (int i = 2; i < tensor->dims; i++)
        product *= tensor->size[i];
    return product;
}

static struct layer layer_of(const struct cudnn_tensor *x, const struct cudnn_tensor *w, const struct cudnn_tensor *y,
                             bool exact)
{
    struct layer layer = {.half = x->type == HALF || x->type == BFLOAT16,
                          .bfloat16 = x->type == BFLOAT16,
                          .exact = exact || (x->type == 0 && standin_capability() < 80),
                          .last = x->dims > 2 && x->step[1] == 1 && x->size[1] > 1,
                          .batch = x->size[0],
                          .in = x->size[1],
                          .out = w->size[0],
                          .groups = w->size[1] > 0 ? x->size[1] / w->size[1] : 1,
                          .image = elements(x),
                          .result = elements(y),
                          .taps = elements(w),
                          .height = x->size[2],
                          .rows = y->size[2],
                          .reach = w->size[2],
                          .x = cudnn_bytes(x),
                          .w = cudnn_bytes(w),
                          .y = cudnn_bytes(y)};
    layer.strided = layer.rows < layer.height - layer.reach + 1;
    return layer;
}

static int64_t rounded(int64_t number, int64_t to)
{
    return (number + to - 1) / to * to;
}

static int64_t parts(int64_t number, int64_t size)
{
    return (number + size - 1) / size;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The number of multiprocessors of an H200, where the driver does not tell. */
static int64_t multiprocessors(void)
{
    int count = standin_multiprocessors();
    return count > 0 ? count : 132;
}

/* ---- without tensor cores ------------------------------------------------------------------------------------------ */

/* Transforms of tiles of 32 by 32: 32 by 17 complex numbers each, of all filters and of two tiles at a time.  A filter
 * has to fit into a tile. */
enum { TILE = 32 };

static size_t by_fourier(const struct layer *layer)
{
    int64_t across = parts(layer->rows, TILE - layer->reach + 1), tiles = least(2, across * across);
    return (size_t)(TILE * (TILE / 2 + 1) * 8 *
                    (layer->in * layer->out + layer->batch * tiles * (layer->in + layer->out)));
}

/* Winograd's transforms of tiles of 4 by 4 results: 36 numbers each. */
static size_t by_winograd(const struct layer *layer)
{
    int64_t across = parts(layer->rows, 4), tiles = layer->batch * across * across;
    return (size_t)(36 * 4 * (tiles * (layer->in + layer->out) + layer->in * layer->out));
}

static size_t exact_workspace(enum cudnn_direction direction, const struct layer *layer)
{
    bool few = layer->in < 16 || layer->groups > 1;
    if (direction == CUDNN_FORWARD || few)
        return 0;
    if (layer->strided)
        return direction == CUDNN_FILTER && layer->taps == 1 ? layer->x + layer->y + SPARE : 0;
    if (direction == CUDNN_FILTER)
        return layer->taps == 9 && layer->reach == 3 ? by_winograd(layer) : 0;
    return layer->reach > 1 && layer->reach <= TILE && layer->height > 16 ? by_fourier(layer) : 0;
}

/* ---- with tensor cores --------------------------------------------------------------------------------------------- */

/* Sums of parts for the gradient of the filter: as many as fill the multiprocessors with tiles of it. */
static size_t sums(const struct layer *layer, int64_t channels)
{
    int64_t columns = channels * layer->taps, count = multiprocessors(), length = layer->batch * layer->result;
    size_t filter = (size_t)(layer->out * columns) * 4;
    size_t spare = layer->taps > 1 && channels == layer->in && channels >= 16 ? 512 : 0;
    if (layer->half) {
        int64_t tiles =
            least(parts(layer->out, 128) * parts(columns, 256), parts(layer->out, 256) * parts(columns, 128));
        int64_t splits = (length < 65536 ? count * 3 / 11 : count) / tiles;
        return splits >= 8 ? (size_t)splits * filter + spare : 0;
    }
    int64_t tiles = parts(layer->out, 256) * parts(columns, 64), splits = count / tiles;
    if (tiles <= count)
        return splits > 1 ? (size_t)splits * filter + spare : 0;
    /* The tiles of the last round are split alone, into parts that are long enough. */
    enum { SHORTEST = 272 };
    int64_t over = tiles % count;
    splits = over ? least(count / over, length / SHORTEST) : 0;
    return splits > 1 ? (size_t)(splits * over * least(layer->out, 256)) * 64 * 4 + spare : 0;
}

static size_t grouped_workspace(enum cudnn_direction direction, const struct layer *layer)
{
    size_t dense = (size_t)(layer->in * layer->out * layer->taps) * 4;
    if (layer->groups == layer->in) /* one channel each */
        return direction == CUDNN_FILTER && layer->last ? dense : 0;
    if (direction == CUDNN_FILTER)
        return layer->half ? 0 : layer->x + layer->y + (layer->last ? 0 : layer->w) + dense + SPARE;
    if (layer->last || (direction == CUDNN_DATA && !layer->half))
        return 0;
    return layer->x + layer->w + layer->y + SPARE;
}

/* TF32 of up to four channels, as in an image. */
static size_t few_workspace(enum cudnn_direction direction, const struct layer *layer)
{
    bool odd = layer->in % 4 != 0;
    if (direction == CUDNN_DATA)
        return layer->last && odd ? layer->x + layer->w + layer->y + SPARE : 0;
    if (direction == CUDNN_FORWARD && (layer->last || !odd))
        return layer->x + layer->w + SPARE;
    size_t parts_of = direction == CUDNN_FILTER ? sums(layer, layer->in) : 0;
    return layer->x + layer->w + layer->y + SPARE + parts_of;
}

/* The channels that a kernel wants: bf16 8, fp16 4 where that is enough. */
static int64_t channels_wanted(enum cudnn_direction direction, const struct layer *layer)
{
    bool four = !layer->bfloat16 && (direction == CUDNN_FORWARD || (direction == CUDNN_FILTER && layer->in % 4 != 0));
    return layer->half ? rounded(layer->in, four ? 4 : 8) : layer->in;
}

static size_t tensor_workspace(enum cudnn_direction direction, const struct layer *layer)
{
    int64_t channels = channels_wanted(direction, layer);
    size_t parts_of = direction == CUDNN_FILTER ? sums(layer, channels) : 0;
    size_t x = layer->x / (size_t)layer->in * (size_t)channels, w = layer->w / (size_t)layer->in * (size_t)channels;
    if (layer->taps == 1)
        w = 0; /* the same in both forms */
    /* A product of matrices for each image. */
    if (!layer->last && layer->taps == 1 && !layer->strided)
        return direction == CUDNN_FILTER ? (size_t)(layer->batch * layer->in * layer->out) * 4 : 0;
    if (layer->half && direction == CUDNN_FORWARD && !layer->last && layer->in * layer->taps < 32)
        return 0;
    if (!layer->half && direction == CUDNN_DATA && layer->taps >= 25 && layer->reach <= TILE && layer->in <= 32 &&
        !layer->strided) {
        size_t fourier = by_fourier(layer);
        return layer->last ? layer->x + layer->w + layer->y + fourier + SPARE : fourier;
    }
    if (layer->last)
        return channels == layer->in ? parts_of + (parts_of ? SPARE : 0) : x + w + parts_of + SPARE;
    /* Some kernels of TF32 read channels last and write them first. */
    bool writes_first = direction == CUDNN_FORWARD && !layer->half && !layer->strided && layer->result % 64 == 0 &&
                        layer->in * layer->taps <= 576;
    return x + w + (writes_first ? 0 : layer->y) + parts_of + SPARE;
}

size_t cudnn_convolution_workspace(enum cudnn_direction direction, const struct cudnn_tensor *x,
                                   const struct cudnn_tensor *w, const struct cudnn_tensor *y, bool exact)
{
    if (x->dims < 3 || x->size[1] < 1 || w->size[0] < 1 || w->size[1] < 1)
        return 0;
    struct layer layer = layer_of(x, w, y, exact);
    if (!layer.half && x->type != 0) {
        standin_assumed("convolution other than fp16, bf16 and fp32: no workspace");
        return 0;
    }
    standin_assumed("convolutions: the workspace that rules of cuDNN 9 on capability 9.0 give");
    if (!layer.half && layer.exact)
        return exact_workspace(direction, &layer);
    if (layer.groups > 1)
        return grouped_workspace(direction, &layer);
    if (!layer.half && layer.in <= 4)
        return few_workspace(direction, &layer);
    return tensor_workspace(direction, &layer);
}
