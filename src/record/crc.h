/* SPDX-License-Identifier: MIT
 * crc.h: the checksum of a recording's blocks. */
#ifndef GP_RECORD_CRC_H
#define GP_RECORD_CRC_H

#include <stddef.h>
#include <stdint.h>

/* CRC-32C (Castagnoli, as iSCSI and ext4) of `count` bytes that follow those of `before` (0: none). */
uint32_t gp_crc32c(uint32_t before, const void *bytes, size_t count);

#endif
