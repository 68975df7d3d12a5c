/* SPDX-License-Identifier: MIT
 *
 * recsave.h: writes a recording in memory to a file, replacing a recording there.
 */
#ifndef GP_TEST_LIB_RECSAVE_H
#define GP_TEST_LIB_RECSAVE_H

#include <read/recording/recording.h>

/* 0 or -errno. */
int recsave(const struct gp_recording *recording, const char *path);

#endif
