/* SPDX-License-Identifier: MIT
 *
 * raw.h: two structs of wire.h as recordings up to format 1.2 hold them, byte by byte. They stay as they are:
 * a change of wire.h changes raw.c alone.
 */
#ifndef GP_RECORDING_RAW_H
#define GP_RECORDING_RAW_H

#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stddef.h>

/* Makes every number unknown (-1), as those are that are younger than a recording. */
void gp_raw_unknown(struct gp_wire_device *out);
/* Reads `bytes` of a device's numbers; of a shorter struct, which an older version wrote, the rest is 0. */
void gp_raw_device(struct gp_wire_device *out, const uint8_t *raw, size_t bytes);
/* The same of a failed request. False: too short. */
bool gp_raw_oom(struct gp_wire_oom *out, const uint8_t *raw, size_t bytes);

#endif
