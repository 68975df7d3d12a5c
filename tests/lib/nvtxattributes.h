/* SPDX-License-Identifier: MIT
 * The attributes of an NVTX range or mark, as a program that is built with NVTX 3 passes them. */
#ifndef GP_TEST_NVTXATTRIBUTES_H
#define GP_TEST_NVTXATTRIBUTES_H

#include <stdint.h>

struct attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
};

#endif
