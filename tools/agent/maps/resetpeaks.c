/* SPDX-License-Identifier: MIT
 *
 * resetpeaks.c: resets machine-wide peaks; see maps.h. It writes a time and never a sum, so a
 * concurrent batch is not lost and the BPF program needs no lock.
 */
#include <agent/maps/maps.h>

#include <base/clock.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Another viewer may write the other of the two times between our read and our store and undo ours,
 * so the loop reads the row again until it holds our times. */
static int reset_store(int fd, const struct gp_map_device_key *key, bool allocated, bool reserved)
{
    uint64_t now = gp_clock_ns();
    for (int tries = 0; tries < 16; tries++) {
        struct gp_map_reset reset = {0};
        if (bpf_map_lookup_elem(fd, key, &reset) != 0 && errno != ENOENT)
            return -errno;
        if ((!allocated || reset.allocated_ns >= now) && (!reserved || reset.reserved_ns >= now))
            return 0;
        if (allocated)
            reset.allocated_ns = now;
        if (reserved)
            reset.reserved_ns = now;
        if (bpf_map_update_elem(fd, key, &reset, BPF_ANY) != 0)
            return errno == EPERM ? -EACCES : -errno;
    }
    return -EBUSY;
}

int gp_system_reset_peaks(const char *pins, const uint8_t *uuid, bool allocated, bool reserved)
{
    struct gp_map_device_key key = {0};
    uint32_t zero = 0;
    struct gp_map_meta meta;
    int fd = gp_pins_open(pins, "meta", false, sizeof(zero), sizeof(meta), NULL);
    if (fd < 0)
        return fd; /* distinguishes "no agent" from "an agent without resets" */
    close(fd);
    fd = gp_pins_open(pins, "reset", true, sizeof(key), sizeof(struct gp_map_reset), NULL);
    if (fd < 0)
        return fd == -ENOENT ? -EPROTO : fd;
    if (uuid)
        memcpy(key.uuid, uuid, sizeof(key.uuid));
    int err = reset_store(fd, &key, allocated, reserved);
    close(fd);
    return err;
}
