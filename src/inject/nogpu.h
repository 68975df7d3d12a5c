/* SPDX-License-Identifier: MIT
 *
 * nogpu.h: detects that this process cannot have a GPU.  The start runs inside cuInit, before the
 * driver searches for devices, so the result of cuInit is not known yet.
 */
#ifndef GP_INJECT_NOGPU_H
#define GP_INJECT_NOGPU_H

#include <stdbool.h>

/* Returns true only if it is certain that there is no GPU: the process has loaded NVIDIA's driver library, and the machine
 * (or the container) shows no sign of its kernel driver.  Makes no CUDA call.  About 50 us. */
bool gp_nogpu_is_certain(void);

/* Call it when cuInit has succeeded: then there is a GPU, even without these signs. */
void gp_nogpu_refute(void);

#endif
