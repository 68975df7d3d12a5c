/* SPDX-License-Identifier: MIT
 *
 * nogpu.h: whether this process can have no GPU.  The start runs inside cuInit, before the driver
 * looks for devices, and nothing tells it how cuInit ended.
 */
#ifndef GP_INJECT_NOGPU_H
#define GP_INJECT_NOGPU_H

#include <stdbool.h>

/* True only if that is certain: the process has loaded NVIDIA's driver library, and the machine
 * (or the container) shows no sign of its kernel driver.  Makes no CUDA call.  About 50 us. */
bool gp_nogpu_is_certain(void);

/* cuInit has succeeded: there is a GPU, whatever the signs say. */
void gp_nogpu_refute(void);

#endif
