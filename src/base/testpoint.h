/* SPDX-License-Identifier: MIT
 *
 * testpoint.h: named windows in concurrent code. Without GP_TESTPOINTS they compile to nothing.
 * With it the test supplies gp_testpoint(), which may yield, sleep or stop the thread there. Put
 * one after each observable side effect that another thread can race with.
 */
#ifndef GP_BASE_TESTPOINT_H
#define GP_BASE_TESTPOINT_H

#ifdef GP_TESTPOINTS
void gp_testpoint(const char *name);
#define GP_TESTPOINT(_name) gp_testpoint(_name)
#else
#define GP_TESTPOINT(_name) ((void)0)
#endif

#endif
