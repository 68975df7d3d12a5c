/* SPDX-License-Identifier: MIT
 *
 * pins.c: see pins.h.
 */
#include <lib/pins.h>

#include <base/clock.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* Not root's group: a test that gives up its user id keeps that group. */
static int gp_test_pin(struct gp_test_pins *pins, const char *name, enum bpf_map_type type, unsigned key,
                       unsigned value, unsigned entries, mode_t mode)
{
    char path[160];
    int fd = bpf_map_create(type, name, key, value, entries, NULL);
    if (fd < 0)
        return -errno;
    snprintf(path, sizeof(path), "%s/%s", pins->dir, name);
    if (bpf_obj_pin(fd, path) != 0 || chown(path, 0, 1) != 0 || chmod(path, mode) != 0) {
        int err = -errno;
        close(fd);
        return err;
    }
    return fd;
}

static int gp_test_pins_mount(struct gp_test_pins *pins, char *why, size_t why_bytes)
{
    if (geteuid() != 0 || unshare(CLONE_NEWNS) != 0) {
        snprintf(why, why_bytes, "needs root");
        return -EPERM;
    }
    /* Mounts over a folder that every machine has, in a private namespace: a test that dies leaves nothing. */
    snprintf(pins->top, sizeof(pins->top), "/mnt");
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("bpf", pins->top, "bpf", 0, "mode=0755") != 0) {
        snprintf(why, why_bytes, "no bpffs: %s", strerror(errno));
        return -errno;
    }
    snprintf(pins->dir, sizeof(pins->dir), "%s/gpuprof", pins->top);
    return mkdir(pins->dir, 0755) == 0 ? 0 : -errno;
}

int gp_test_pins_make(struct gp_test_pins *pins, char *why, size_t why_bytes)
{
    memset(pins, 0, sizeof(*pins));
    int err = gp_test_pins_mount(pins, why, why_bytes);
    if (err)
        return err;
    const unsigned sum = sizeof(struct gp_map_sum);
    pins->meta = gp_test_pin(pins, "meta", BPF_MAP_TYPE_ARRAY, 4, sizeof(struct gp_map_meta), 1, 0644);
    pins->process = gp_test_pin(pins, "process_device", BPF_MAP_TYPE_HASH, sizeof(struct gp_map_process_key),
                                sizeof(struct gp_map_process), GP_MAPS_PROCESSES, 0640);
    pins->container_device = gp_test_pin(pins, "container_device", BPF_MAP_TYPE_HASH,
                                         sizeof(struct gp_map_container_key), sum, GP_MAPS_CONTAINERS, 0644);
    pins->device =
        gp_test_pin(pins, "device", BPF_MAP_TYPE_HASH, sizeof(struct gp_map_device_key), sum, GP_MAPS_DEVICES, 0644);
    pins->container =
        gp_test_pin(pins, "container", BPF_MAP_TYPE_HASH, 8, sizeof(struct gp_map_container), GP_MAPS_CONTAINERS, 0644);
    pins->reset = gp_test_pin(pins, "reset", BPF_MAP_TYPE_HASH, sizeof(struct gp_map_device_key),
                              sizeof(struct gp_map_reset), GP_MAPS_DEVICES + 1, 0644);
    if (pins->meta < 0 || pins->process < 0 || pins->container_device < 0 || pins->device < 0 || pins->container < 0 ||
        pins->reset < 0) {
        snprintf(why, why_bytes, "no BPF maps can be made and pinned here: %s", strerror(errno));
        gp_test_pins_free(pins);
        return -EPERM;
    }
    struct gp_map_meta meta = {.start_ns = gp_clock_ns()};
    return gp_test_pins_meta(pins, &meta, 0);
}

void gp_test_pins_free(struct gp_test_pins *pins)
{
    const int fds[] = {pins->meta, pins->process, pins->container_device, pins->device, pins->container, pins->reset};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        if (fds[i] > 0)
            close(fds[i]);
    if (pins->dir[0])
        umount2(pins->top, MNT_DETACH);
}

int gp_test_pins_meta(struct gp_test_pins *pins, struct gp_map_meta *meta, unsigned age_s)
{
    uint32_t zero = 0;
    meta->abi = meta->abi ? meta->abi : GP_MAPS_ABI;
    meta->process_bytes = sizeof(struct gp_map_process);
    meta->sum_bytes = sizeof(struct gp_map_sum);
    meta->container_bytes = sizeof(struct gp_map_container);
    meta->agent_pid = 1;
    uint64_t age = age_s * 1000000000ull, now = gp_clock_ns();
    meta->heartbeat_ns = age < now ? now - age : 1;
    return bpf_map_update_elem(pins->meta, &zero, meta, BPF_ANY);
}

void gp_test_pins_uuid(uint8_t uuid[16], unsigned n)
{
    memset(uuid, 0xa0, 16);
    uuid[15] = (uint8_t)n;
}

static void pins_uuid(const struct gp_test_pins *pins, uint8_t uuid[16], unsigned n)
{
    gp_test_pins_uuid(uuid, n);
    for (unsigned i = 0; pins->session_uuids && i < 16; i++)
        uuid[i] = (uint8_t)(0xa0 + n + i);
}

int gp_test_pins_process(struct gp_test_pins *pins, unsigned tgid, uint64_t start_ns, unsigned gpu, unsigned uid,
                         uint64_t cgroup_id, const char *comm, int64_t allocated)
{
    struct gp_map_process_key key = {.tgid = tgid, .device = gpu};
    struct gp_map_process value = {.start_ns = start_ns,
                                   .cgroup_id = cgroup_id,
                                   .uid = uid,
                                   .total_bytes = 80ll << 30,
                                   .allocated_bytes = allocated,
                                   .allocated_peak_bytes = 2 * allocated,
                                   .reserved_bytes = allocated + (1 << 20),
                                   .reserved_peak_bytes = 2 * allocated + (1 << 20),
                                   .calls = 30,
                                   .frees = 10,
                                   .lost = 3,
                                   .seq = 7};
    value.allocated_peak_ns = value.reserved_peak_ns = value.last_ns = gp_clock_ns();
    strncpy(value.comm, comm, sizeof(value.comm) - 1);
    pins_uuid(pins, value.uuid, gpu);
    return bpf_map_update_elem(pins->process, &key, &value, BPF_ANY);
}

int gp_test_pins_sum(struct gp_test_pins *pins, uint64_t cgroup_id, unsigned gpu, unsigned processes, int64_t allocated,
                     int64_t peak)
{
    struct gp_map_container_key key = {.cgroup_id = cgroup_id};
    struct gp_map_sum sum = {.processes = processes,
                             .total_bytes = 80ll << 30,
                             .allocated_bytes = allocated,
                             .allocated_peak_bytes = peak,
                             .reserved_bytes = allocated + (1 << 20),
                             .reserved_peak_bytes = peak + (1 << 20),
                             .calls = 100,
                             .frees = 50};
    sum.allocated_peak_ns = sum.reserved_peak_ns = gp_clock_ns();
    pins_uuid(pins, key.uuid, gpu);
    return cgroup_id ? bpf_map_update_elem(pins->container_device, &key, &sum, BPF_ANY)
                     : bpf_map_update_elem(pins->device, key.uuid, &sum, BPF_ANY);
}
