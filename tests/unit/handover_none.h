/* SPDX-License-Identifier: MIT
 *
 * handover_none.h: stands in for the changes of the source, of which nothing is wanted.
 */
#ifndef GP_TEST_HANDOVER_NONE_H
#define GP_TEST_HANDOVER_NONE_H

#include "source/source.h"

void gp_handover_look(void)
{
}

void gp_cupti_gap_holds(uint64_t bytes)
{
    (void)bytes;
}

#endif
