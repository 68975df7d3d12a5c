/* SPDX-License-Identifier: MIT
 *
 * copy.c: the agent's maps: opened by their pins, copied, and their peaks reset; see maps.h.
 */
#include <agent/maps/maps.h>
#include <base/clock.h>
#include <base/text.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ==== the pins ==================================================================================================== */
/* Opens the agent's pinned maps and explains why one cannot be opened. */

static int pins_check(int fd, uint32_t key_bytes, uint32_t value_bytes, uint32_t *max_entries)
{
    struct bpf_map_info info = {0};
    uint32_t info_bytes = sizeof(info);
    if (bpf_obj_get_info_by_fd(fd, &info, &info_bytes) != 0)
        return errno == EINVAL ? -EPROTO : -errno; /* the pin is a program or a link, not a map */
    if (info.key_size != key_bytes || info.value_size != value_bytes)
        return -EPROTO;
    if (max_entries)
        *max_entries = info.max_entries;
    return 0;
}

/* Opens the map PINS/NAME, whose key and value must have these sizes; max_entries may be NULL.
 * Returns a descriptor; -ENOENT; -EACCES; -EPROTO: other sizes. */
static int pins_open(const char *pins, const char *name, bool write, uint32_t key_bytes, uint32_t value_bytes,
                     uint32_t *max_entries)
{
    char path[PATH_MAX];
    /* Without this flag the kernel also requires write permission. */
    LIBBPF_OPTS(bpf_obj_get_opts, options, .file_flags = write ? 0 : BPF_F_RDONLY);
    if (snprintf(path, sizeof(path), "%s/%s", pins, name) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    int fd = bpf_obj_get_opts(path, &options);
    if (fd < 0)
        return errno == EPERM ? -EACCES : errno == ENOTDIR ? -ENOENT : -errno;
    int err = pins_check(fd, key_bytes, value_bytes, max_entries);
    if (!err)
        return fd;
    close(fd);
    return err;
}

/* If this is set, kernels before 5.19 refuse bpf(2) to callers without CAP_BPF, whatever the modes
 * are. */
static bool pins_forbidden(void)
{
    int value = 0;
    FILE *file = fopen("/proc/sys/kernel/unprivileged_bpf_disabled", "re");
    if (!file)
        return false;
    bool read = fscanf(file, "%d", &value) == 1;
    fclose(file);
    return read && value != 0;
}

static void pins_denied(const char *pins, const char *name, char *why, size_t why_bytes)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", pins, name);
    if (access(path, F_OK) != 0)
        snprintf(why, why_bytes,
                 "no permission to search %s: run as root, or open it to other users (chmod o+x on its parents)", pins);
    else if (access(path, strcmp(name, "reset") == 0 ? R_OK | W_OK : R_OK) == 0 && pins_forbidden())
        snprintf(why, why_bytes,
                 "this kernel forbids bpf(2) without CAP_BPF (kernel.unprivileged_bpf_disabled): run as root");
    else
        snprintf(why, why_bytes, "%s/%s: permission denied: run as root", pins, name);
}

void gp_maps_explain(int error, const char *pins, const char *name, char *why, size_t why_bytes)
{
    switch (error) {
    case -ENOENT:
        snprintf(why, why_bytes,
                 "no agent has pinned its maps in %s: start one as root with 'gpuprof agent' or 'systemctl start "
                 "gpuprof-agent'",
                 pins);
        break;
    case -EACCES:
        pins_denied(pins, name, why, why_bytes);
        break;
    case -EPROTO:
        snprintf(why, why_bytes, "%s/%s is from another version of gpuprof: restart the agent with this version", pins,
                 name);
        break;
    default:
        snprintf(why, why_bytes, "%s/%s: %s", pins, name, strerror(-error));
    }
}

/* ==== resets ====================================================================================================== */
/* Resets machine-wide peaks. It writes a time and never a sum, so a concurrent batch is not lost and
 * the BPF program needs no lock. */

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
    int fd = pins_open(pins, "meta", false, sizeof(zero), sizeof(meta), NULL);
    if (fd < 0)
        return fd; /* distinguishes "no agent" from "an agent without resets" */
    close(fd);
    fd = pins_open(pins, "reset", true, sizeof(key), sizeof(struct gp_map_reset), NULL);
    if (fd < 0)
        return fd == -ENOENT ? -EPROTO : fd;
    if (uuid)
        memcpy(key.uuid, uuid, sizeof(key.uuid));
    int err = reset_store(fd, &key, allocated, reserved);
    close(fd);
    return err;
}

/* ==== the copy ==================================================================================================== */
/* Copies the agent's maps. Two system calls per map where the kernel reads in batches. Entries that
 * are added or removed meanwhile may be missing or present. Each number in an entry is whole; two
 * numbers of one entry may be one batch apart. */

/* Our agent creates no table larger than this. */
#define GP_SYSTEM_MOST 262144u
/* The copy has room for twice the table, plus this for small tables: while entries change, some are
 * read twice. */
#define GP_SYSTEM_SLACK 64u

struct gp_map_table { /* a copy of a hash map */
    uint32_t count, capacity, key_bytes, value_bytes;
    char *keys, *values;
};

static void table_free(struct gp_map_table *table)
{
    free(table->keys);
    free(table->values);
    *table = (struct gp_map_table){0};
}

static int table_copy_once(struct gp_map_table *table, int fd)
{
    LIBBPF_OPTS(bpf_map_batch_opts, options);
    uint32_t from = 0, next = 0; /* positions are opaque: 4 bytes for a hash map */
    table->count = 0;
    for (bool first = true; table->count < table->capacity; first = false) {
        uint32_t count = table->capacity - table->count;
        int err =
            bpf_map_lookup_batch(fd, first ? NULL : &from, &next, table->keys + (size_t)table->count * table->key_bytes,
                                 table->values + (size_t)table->count * table->value_bytes, &count, &options);
        if (err && errno != ENOENT)
            return -errno;
        table->count += count;
        if (err)
            return 0; /* ENOENT: this was the last part */
        from = next;
    }
    return -ENOSPC;
}

/* An entry that moves to a part not read yet is read twice, so there may be more entries than the
 * table has room for. The kernel returns ENOSPC if the next bucket does not fit. */
static int table_copy(struct gp_map_table *table, int fd)
{
    int err = -ENOSPC;
    for (int tries = 0; err == -ENOSPC && tries < 3; tries++)
        err = table_copy_once(table, fd);
    return err;
}

static int table_read(struct gp_map_table *table, const char *pins, const char *name, uint32_t key_bytes,
                      uint32_t value_bytes)
{
    uint32_t most;
    int fd = pins_open(pins, name, false, key_bytes, value_bytes, &most);
    if (fd < 0)
        return fd;
    *table = (struct gp_map_table){.key_bytes = key_bytes, .value_bytes = value_bytes};
    table->capacity = (most < GP_SYSTEM_MOST ? most : GP_SYSTEM_MOST) * 2 + GP_SYSTEM_SLACK;
    /* Untouched pages cost nothing, so no first pass counts the entries. */
    table->keys = calloc(table->capacity, key_bytes);
    table->values = calloc(table->capacity, value_bytes);
    int err = table->keys && table->values ? table_copy(table, fd) : -ENOMEM;
    close(fd);
    if (err)
        table_free(table);
    return err;
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

/* Names are read from files, so they are cached for this time; a pod's name may appear later than
 * its cgroup. */
#define GP_NAME_NS    10000000000ull
#define GP_NAME_SLOTS 1024u

static struct gp_name { /* direct-mapped cache by cgroup id */
    uint64_t cgroup_id, time_ns;
    char text[sizeof(((struct gp_system_sum *)0)->name)];
} name_cache[GP_NAME_SLOTS];
static pthread_mutex_t names_mutex = PTHREAD_MUTEX_INITIALIZER;

/* "namespace/pod/container", "container", the first 12 digits of its id, or its cgroup's path. A
 * name that is too long keeps its end, which says more than its start. */
static void system_name_make(uint64_t cgroup_id, pid_t hint, char *out, size_t out_bytes)
{
    struct gp_container_name *name = calloc(1, sizeof(*name));
    char text[512] = "";
    if (name && gp_container_lookup("", cgroup_id, hint, name) == 0) {
        if (name->pod[0])
            snprintf(text, sizeof(text), "%s%s%s%s%s", name->namespace_, name->namespace_[0] ? "/" : "", name->pod,
                     name->container[0] ? "/" : "", name->container);
        else if (name->container[0])
            snprintf(text, sizeof(text), "%s", name->container);
        else if (name->id[0])
            snprintf(text, sizeof(text), "%.12s", name->id);
        else
            snprintf(text, sizeof(text), "%s", name->path);
    }
    free(name);
    if (!text[0])
        snprintf(text, sizeof(text), "cgroup %llu", (unsigned long long)cgroup_id);
    size_t length = strlen(text), cut = length < out_bytes ? 0 : length - out_bytes + 1;
    gp_text_clean(out, out_bytes, text + cut, sizeof(text) - cut);
}

static void system_name(uint64_t cgroup_id, pid_t hint, char *out, size_t out_bytes)
{
    struct gp_name *slot = &name_cache[cgroup_id % GP_NAME_SLOTS];
    uint64_t now = gp_clock_ns();
    pthread_mutex_lock(&names_mutex);
    if (slot->cgroup_id != cgroup_id || slot->time_ns == 0 || now - slot->time_ns > GP_NAME_NS) {
        system_name_make(cgroup_id, hint, slot->text, sizeof(slot->text));
        slot->cgroup_id = cgroup_id;
        slot->time_ns = now;
    }
    snprintf(out, out_bytes, "%s", slot->text);
    pthread_mutex_unlock(&names_mutex);
}

/* ---- resets ------------------------------------------------------------------------------------------------------ */

static struct gp_map_reset reset_of(const struct gp_map_table *resets, const uint8_t uuid[16])
{
    static const uint8_t every[16];
    struct gp_map_reset last = {0};
    for (uint32_t i = 0; i < resets->count; i++) {
        struct gp_map_device_key key;
        struct gp_map_reset reset;
        memcpy(&key, resets->keys + (size_t)i * sizeof(key), sizeof(key));
        memcpy(&reset, resets->values + (size_t)i * sizeof(reset), sizeof(reset));
        if (memcmp(key.uuid, uuid, 16) != 0 && memcmp(key.uuid, every, 16) != 0)
            continue;
        last.allocated_ns = reset.allocated_ns > last.allocated_ns ? reset.allocated_ns : last.allocated_ns;
        last.reserved_ns = reset.reserved_ns > last.reserved_ns ? reset.reserved_ns : last.reserved_ns;
    }
    return last;
}

static void system_sum_peaks(struct gp_system_sum *sum, const struct gp_map_table *resets)
{
    struct gp_map_reset reset = reset_of(resets, sum->uuid);
    struct gp_map_sum *v = &sum->value;
    v->allocated_peak_bytes =
        gp_map_peak_of(v->allocated_bytes, v->allocated_peak_bytes, v->allocated_peak_ns, reset.allocated_ns);
    v->reserved_peak_bytes =
        gp_map_peak_of(v->reserved_bytes, v->reserved_peak_bytes, v->reserved_peak_ns, reset.reserved_ns);
    v->asleep_peak_bytes = gp_map_peak_of(v->asleep_bytes, v->asleep_peak_bytes, v->asleep_peak_ns, reset.allocated_ns);
}

static void system_process_peaks(struct gp_map_process *v, const struct gp_map_table *resets)
{
    struct gp_map_reset reset = reset_of(resets, v->uuid);
    v->allocated_peak_bytes =
        gp_map_peak_of(v->allocated_bytes, v->allocated_peak_bytes, v->allocated_peak_ns, reset.allocated_ns);
    v->reserved_peak_bytes =
        gp_map_peak_of(v->reserved_bytes, v->reserved_peak_bytes, v->reserved_peak_ns, reset.reserved_ns);
    v->asleep_peak_bytes = gp_map_peak_of(v->asleep_bytes, v->asleep_peak_bytes, v->asleep_peak_ns, reset.allocated_ns);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* No permission to read this table is not an error: processes_seen stays false. */
static int system_processes(struct gp_system_view *view, const char *pins, const struct gp_map_table *resets)
{
    struct gp_map_table table;
    int err =
        table_read(&table, pins, "process_device", sizeof(struct gp_map_process_key), sizeof(struct gp_map_process));
    if (err == -EACCES)
        return 0;
    if (err)
        return err;
    view->processes = calloc(table.count + 1u, sizeof(*view->processes));
    if (!view->processes) {
        table_free(&table);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < table.count; i++) {
        struct gp_system_process *process = &view->processes[i];
        memcpy(&process->key, table.keys + (size_t)i * table.key_bytes, table.key_bytes);
        memcpy(&process->value, table.values + (size_t)i * table.value_bytes, table.value_bytes);
        gp_text_clean(process->comm, sizeof(process->comm), process->value.comm, sizeof(process->value.comm));
        system_process_peaks(&process->value, resets);
    }
    view->process_count = table.count;
    view->processes_seen = true;
    table_free(&table);
    return 0;
}

/* A process of the container if one is known: it gives the cgroup's path without a search. */
static pid_t system_hint(const struct gp_system_view *view, uint64_t cgroup_id)
{
    for (uint32_t i = 0; i < view->process_count; i++) {
        if (view->processes[i].value.cgroup_id == cgroup_id)
            return (pid_t)view->processes[i].key.tgid;
    }
    return 0;
}

/* key_bytes distinguishes the two tables of sums: a container's key has its cgroup before the
 * device. */
static int system_sums(struct gp_system_view *view, const char *pins, const char *name, uint32_t key_bytes,
                       const struct gp_map_table *resets, struct gp_system_sum **out, uint32_t *count)
{
    struct gp_map_table table;
    int err = table_read(&table, pins, name, key_bytes, sizeof(struct gp_map_sum));
    if (err)
        return err;
    struct gp_system_sum *sums = calloc(table.count + 1u, sizeof(*sums));
    if (!sums) {
        table_free(&table);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < table.count; i++) {
        const char *key = table.keys + (size_t)i * key_bytes;
        struct gp_system_sum *sum = &sums[i];
        memcpy(sum->uuid, key + key_bytes - sizeof(sum->uuid), sizeof(sum->uuid));
        memcpy(&sum->value, table.values + (size_t)i * table.value_bytes, table.value_bytes);
        system_sum_peaks(sum, resets);
        if (key_bytes != sizeof(struct gp_map_container_key))
            continue;
        memcpy(&sum->cgroup_id, key, sizeof(sum->cgroup_id));
        system_name(sum->cgroup_id, system_hint(view, sum->cgroup_id), sum->name, sizeof(sum->name));
    }
    *out = sums;
    *count = table.count;
    table_free(&table);
    return 0;
}

static int system_meta(struct gp_system_view *view, const char *pins)
{
    uint32_t zero = 0;
    struct gp_map_meta *meta = &view->meta;
    int fd = pins_open(pins, "meta", false, sizeof(zero), sizeof(*meta), NULL);
    if (fd < 0)
        return fd;
    int err = bpf_map_lookup_elem(fd, &zero, meta) == 0 ? 0 : -errno;
    close(fd);
    if (err)
        return err;
    if (meta->abi != GP_MAPS_ABI || meta->process_bytes != sizeof(struct gp_map_process) ||
        meta->sum_bytes != sizeof(struct gp_map_sum) || meta->container_bytes != sizeof(struct gp_map_container))
        return -EPROTO;
    uint64_t now = gp_clock_ns();
    view->alive = meta->heartbeat_ns && (meta->heartbeat_ns >= now || now - meta->heartbeat_ns < GP_SYSTEM_ALIVE_NS);
    return 0;
}

static int system_read_all(struct gp_system_view *view, const char *pins, const char **part)
{
    struct gp_map_table resets = {0};
    *part = "meta";
    int err = system_meta(view, pins);
    if (!err) {
        *part = "reset";
        err = table_read(&resets, pins, *part, sizeof(struct gp_map_device_key), sizeof(struct gp_map_reset));
        if (err == -ENOENT) /* an older agent: peaks are since its start */
            err = 0;
    }
    if (!err) {
        *part = "process_device";
        err = system_processes(view, pins, &resets);
    }
    if (!err) {
        *part = "container_device";
        err = system_sums(view, pins, *part, sizeof(struct gp_map_container_key), &resets, &view->containers,
                          &view->container_count);
    }
    if (!err) {
        *part = "device";
        err = system_sums(view, pins, *part, sizeof(struct gp_map_device_key), &resets, &view->devices,
                          &view->device_count);
    }
    table_free(&resets);
    return err;
}

int gp_system_view_read(struct gp_system_view **out, const char *pins, char *why, size_t why_bytes)
{
    const char *part = "meta";
    struct gp_system_view *view = calloc(1, sizeof(*view));
    *out = NULL;
    int err = view ? system_read_all(view, pins, &part) : -ENOMEM;
    if (err) {
        gp_system_view_free(view);
        gp_maps_explain(err, pins, part, why, why_bytes);
        return err;
    }
    if (why_bytes)
        why[0] = '\0';
    *out = view;
    return 0;
}

void gp_system_view_free(struct gp_system_view *view)
{
    if (!view)
        return;
    free(view->processes);
    free(view->containers);
    free(view->devices);
    free(view);
}
