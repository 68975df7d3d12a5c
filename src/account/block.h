/* SPDX-License-Identifier: MIT
 *
 * block.h: the map of blocks.
 */
#ifndef GP_ACCOUNT_BLOCK_H
#define GP_ACCOUNT_BLOCK_H

#include "base/map.h"

/* Puts a record into the map, after the driver refused to end it. Its bytes are in the totals. */
void gp_block_put(struct gp_record *record);

#endif
