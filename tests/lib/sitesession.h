/* SPDX-License-Identifier: MIT
 *
 * sitesession.h: makes sessions with call sites for tests of readers. It shares only wire.h with src/stack.
 */
#ifndef GP_TEST_LIB_SITESESSION_H
#define GP_TEST_LIB_SITESESSION_H

#include <lib/session.h>

struct gp_test_sites {
    struct gp_wire_sites *head;
    struct gp_wire_site *rows;
    struct gp_wire_frame *frames;
    char *strings;
};

/* Adds room for sites to a session that is not sealed.  0 or -errno. */
int gp_test_sites_make(struct gp_test_session *session, struct gp_test_sites *sites, uint32_t modes);
/* Appends a string and returns its offset; that of "" is 0. */
uint32_t gp_test_sites_string(struct gp_test_sites *sites, const char *text);
/* Adds a site of these frames, with live and peak bytes and 1 call. The tables start with row 0. */
void gp_test_sites_python(struct gp_test_sites *sites, const char *function, const char *file, uint32_t line);
void gp_test_sites_native(struct gp_test_sites *sites, uint64_t pc);
uint32_t gp_test_sites_end(struct gp_test_sites *sites, int device, int kind, int64_t live, int64_t peak);

/* Starts a child as gp_test_process_start does, with three Python sites and a native one; two grow every
 * 50 ms. */
pid_t gp_test_sites_process(void);

#endif
