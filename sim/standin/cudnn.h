/* SPDX-License-Identifier: MIT
 * What the two files of cuDNN's stand-in share. */
#ifndef SIM_STANDIN_CUDNN_H
#define SIM_STANDIN_CUDNN_H

#include "standin.h"

#define STANDIN_NO_MEMORY     (standin_major() < 9 ? 2 : 4003)
#define STANDIN_BAD_PARAM     (standin_major() < 9 ? 3 : 2000)
#define STANDIN_NOT_SUPPORTED (standin_major() < 9 ? 9 : 3000)

enum { CUDNN_DIMS = 8 };

struct cudnn_tensor {
    int type, dims;
    int64_t size[CUDNN_DIMS], step[CUDNN_DIMS];
};

/* Of one element of a cudnnDataType_t. */
size_t cudnn_element(int type);
/* From the first element to behind the last. */
size_t cudnn_bytes(const struct cudnn_tensor *tensor);
enum cudnn_direction { CUDNN_FORWARD, CUDNN_FILTER, CUDNN_DATA };
/* w is the filter; exact: the program forbids TF32. */
size_t cudnn_convolution_workspace(enum cudnn_direction direction, const struct cudnn_tensor *x,
                                   const struct cudnn_tensor *w, const struct cudnn_tensor *y, bool exact);

/* Sets a dense tensor of three dimensions. */
int cudnn_tensor_set(word descriptor, int type, const int size[3]);

#endif
