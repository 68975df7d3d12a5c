/* SPDX-License-Identifier: MIT
 *
 * pins.h: makes the agent's maps with libbpf and pins them in a bpffs of the test's own. It is mounted in a
 * private mount namespace, so it ends with the test process. Of the product it uses only the layouts of maps.h.
 */
#ifndef GP_TEST_LIB_PINS_H
#define GP_TEST_LIB_PINS_H

#include <gpuprof/maps.h>
#include <stdbool.h>
#include <stddef.h>

struct gp_test_pins {
    char top[64];                                                  /* the mount */
    char dir[80];                                                  /* the pins */
    int meta, process, container_device, device, container, reset; /* descriptors */
    bool session_uuids;                                            /* GPUs have the uuids of lib/session.h */
};

/* 0; otherwise the caller skips the test, and why has the reason (no root, no bpffs, no bpf(2)). */
int gp_test_pins_make(struct gp_test_pins *pins, char *why, size_t why_bytes);
void gp_test_pins_free(struct gp_test_pins *pins);

/* Writes meta with a heartbeat of `age_s` seconds ago. */
int gp_test_pins_meta(struct gp_test_pins *pins, struct gp_map_meta *meta, unsigned age_s);
/* GPU number n's uuid. */
void gp_test_pins_uuid(uint8_t uuid[16], unsigned n);
/* Adds a process on a GPU. Its peaks are twice the current bytes, and their time is now. */
int gp_test_pins_process(struct gp_test_pins *pins, unsigned tgid, uint64_t start_ns, unsigned gpu, unsigned uid,
                         uint64_t cgroup_id, const char *comm, int64_t allocated);
/* Sets the sum of a container (cgroup_id) or of a GPU (0), with a peak that no process here explains. */
int gp_test_pins_sum(struct gp_test_pins *pins, uint64_t cgroup_id, unsigned gpu, unsigned processes, int64_t allocated,
                     int64_t peak);

#endif
