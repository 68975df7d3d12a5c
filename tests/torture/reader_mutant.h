/* SPDX-License-Identifier: MIT
 *
 * reader_mutant.h: for the negative controls of the tortures of readers: whether a viewer reads is what a thread saw at
 * its last mutant_look, which a control calls before the change. Include it before the oracle.
 */
#ifndef GP_TEST_TORTURE_READER_MUTANT_H
#define GP_TEST_TORTURE_READER_MUTANT_H

#include "account/event.h"
#include <unistd.h>

static __thread bool mutant_heard;

static bool mutant_look(void)
{
    static __thread unsigned looks;
    bool heard = gp_event_heard();
    if (looks++ % 64 == 0)
        usleep(20000); /* longer than the reader's start takes, also under a sanitizer: it falls into it */
    return heard;
}

#define gp_event_heard() mutant_heard

#endif
