/* SPDX-License-Identifier: MIT
 *
 * sitesession.h: sessions with call sites, for tests of the reading side; shares nothing with src/site but wire.h.
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
/* Appends a string; "" is offset 0. */
uint32_t gp_test_sites_string(struct gp_test_sites *sites, const char *text);
/* A site of these frames (row 0 is made with the tables); numbers: live and peak bytes, 1 call. */
void gp_test_sites_python(struct gp_test_sites *sites, const char *function, const char *file, uint32_t line);
void gp_test_sites_native(struct gp_test_sites *sites, uint64_t pc);
uint32_t gp_test_sites_end(struct gp_test_sites *sites, int device, int kind, int64_t live, int64_t peak);

/* A child as gp_test_process_start makes it, with three Python sites and a native one; two grow every 50 ms. */
pid_t gp_test_sites_process(void);

#endif
