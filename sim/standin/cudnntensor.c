/* SPDX-License-Identifier: MIT
 * Bytes of a tensor that libcudnn.so is given. */
#include "cudnn.h"

size_t cudnn_element(int type)
{
    static const unsigned char bytes[] = {4, 8, 2, 1, 4, 4, 1, 4, 32, 2, 8, 1, 1, 1, 4};
    return type >= 0 && type < (int)sizeof bytes ? bytes[type] : 4;
}

size_t cudnn_bytes(const struct cudnn_tensor *tensor)
{
    int64_t last = 0;
    for (int i = 0; i < tensor->dims; i++)
        last += (tensor->size[i] - 1) * tensor->step[i];
    return tensor->dims ? (size_t)(last + 1) * cudnn_element(tensor->type) : 0;
}
