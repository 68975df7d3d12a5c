/* SPDX-License-Identifier: MIT
 * crc.h: the checksum of a recording's blocks. */
#ifndef GP_RECORD_CRC_H
#define GP_RECORD_CRC_H

#include <stddef.h>
#include <stdint.h>

/* CRC-32C (Castagnoli, as in iSCSI and ext4) of `count` bytes, continued from the checksum `before`
 * of the preceding bytes (0: none). */
uint32_t gp_crc32c(uint32_t before, const void *bytes, size_t count);

#endif
