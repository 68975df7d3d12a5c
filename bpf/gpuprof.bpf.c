/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * gpuprof.bpf.c: sums the batches that profiled processes fire at the probe gpuprof:batch, per
 * process, container and device, and removes a process from all sums when it ends. bpf/README.md
 * says what the maps mean.
 *
 * No program here waits. The verifier allows no bpf_spin_lock at uprobes, and the holder of any
 * other lock could be preempted (these programs are preemptible since Linux 6.0). So a process's
 * rows belong to the program that changes its `busy` from 0 to 1; any other program gives up and
 * counts the batch. Sums, which many processes change, are single words changed by atomic adds. The
 * adds of one word have one order and each passes its result to the peak, so the peak is the
 * highest value that the word ever had. For the same reason there is no per-CPU scratch memory:
 * rows are read one at a time onto the stack, events straight into the ring.
 *
 * The library fires under a lock, so two concurrent batches from one process can only be forged.
 * The second is rejected, so no difference is applied twice. Exit and exec run when no other thread
 * of the process can fire.
 */
#include "loaderabi.h"
#include "vmlinux.h"
#include <asm-generic/errno-base.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <gpuprof/maps.h>
#include <stdbool.h>
#include <stddef.h>

#include "container.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define map_of(_name, _type, _key, _value, _entries)                                                                   \
    struct {                                                                                                           \
        __uint(type, _type);                                                                                           \
        __uint(max_entries, _entries);                                                                                 \
        __type(key, _key);                                                                                             \
        __type(value, _value);                                                                                         \
    } _name SEC(".maps")

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE); /* the agent writes its heartbeat here without overwriting counters */
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, struct gp_map_meta);
} meta SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, GP_MAPS_RING_BYTES);
} events SEC(".maps");
map_of(process, BPF_MAP_TYPE_HASH, uint32_t, struct gp_bpf_process, GP_MAPS_PROCESSES);
map_of(process_device, BPF_MAP_TYPE_HASH, struct gp_map_process_key, struct gp_map_process, GP_MAPS_PROCESSES);
map_of(container_device, BPF_MAP_TYPE_HASH, struct gp_map_container_key, struct gp_map_sum, GP_MAPS_CONTAINERS);
map_of(device, BPF_MAP_TYPE_HASH, struct gp_map_device_key, struct gp_map_sum, GP_MAPS_DEVICES);
map_of(container, BPF_MAP_TYPE_HASH, uint64_t, struct gp_map_container, GP_MAPS_CONTAINERS);
map_of(reset, BPF_MAP_TYPE_HASH, struct gp_map_device_key, struct gp_map_reset, GP_MAPS_DEVICES + 1);

/* Set by the loader. */
const volatile uint64_t event_cost_ns = 1000000000ull / GP_MAPS_QUIET_EVENTS;
const volatile uint64_t bucket_ns = 1000000000ull / GP_MAPS_QUIET_EVENTS * GP_MAPS_QUIET_BURST;
const volatile uint64_t ring_shared_bytes = GP_MAPS_RING_BYTES / 2;
const volatile uint64_t ring_wake_bytes = GP_MAPS_RING_BYTES / 16;
const volatile uint64_t entries_of_container = GP_MAPS_ENTRIES_OF_CONTAINER;
const volatile uint64_t agent_start_ns = 0; /* CLOCK_BOOTTIME, as the start of a process */

/* The initial values of new rows. */
static const struct gp_bpf_process no_process;
static const struct gp_map_process no_row;
static const struct gp_map_sum no_sum;
static const struct gp_map_container no_container;
static const struct gp_map_device_key every_device;

/* Another program raised the word at each failure, so this many in a row do not occur. */
#define RAISE_TRIES 16
#define ADOPT_NS    1000000000ull /* in which a process of an earlier start tells all of its devices */
#define JUMP_LIMIT  (1ull << 20)  /* the most that one forged batch adds to a machine-wide counter */

struct who { /* the process that fired, as identified by the kernel */
    uint64_t start_ns, cgroup_id, now_ns;
    uint32_t tgid, uid;
};

struct header { /* the part of gp_batch before its rows */
    uint64_t magic;
    uint32_t abi, bytes;
    uint8_t session_id[16];
    uint64_t seq, time_ns, lost;
    __u16 device_count, event_count;
    uint32_t flags;
};
_Static_assert(sizeof(struct header) == offsetof(struct gp_batch, devices), "batch");

#define add(_word, _by) __sync_fetch_and_add(&(_word), _by)

static __always_inline uint64_t word_at(const void *at)
{
    return *(const volatile uint64_t *)at;
}

static __always_inline bool same_16(const uint8_t *a, const uint8_t *b)
{
    return word_at(a) == word_at(b) && word_at(a + 8) == word_at(b + 8);
}

static __always_inline void copy_16(uint8_t *to, const uint8_t *from)
{
    *(volatile uint64_t *)to = word_at(from);
    *(volatile uint64_t *)(to + 8) = word_at(from + 8);
}

static __always_inline bool is_known(const uint8_t *uuid)
{
    return (word_at(uuid) | word_at(uuid + 8)) != 0;
}

static __always_inline struct gp_map_meta *meta_get(void)
{
    uint32_t zero = 0;
    return bpf_map_lookup_elem(&meta, &zero);
}

/* ---- sums ------------------------------------------------------------------------------------------------------ */

static __always_inline int raise_here(int64_t *at, int64_t to)
{
    int64_t seen = *(volatile int64_t *)at;
    for (int i = 0; i < RAISE_TRIES; i++) {
        if (seen >= to)
            return 0;
        int64_t was = __sync_val_compare_and_swap(at, seen, to);
        if (was == seen)
            return 1;
        seen = was;
    }
    return 0;
}

/* The verifier checks a function without `static` once, not at each call; inlined, these would give
 * it more paths than it follows. In return it requires checks of their pointers. Before Linux 6.13
 * the frames of a call chain (32 bytes each at least) may take 512 bytes together; the longest,
 * gpuprof_batch to device_move to sum_move, takes all of them. */
__noinline int raise(int64_t *at, int64_t to)
{
    return at ? raise_here(at, to) : 0;
}

/* If the peak is older than the last reset, the first program that sees this restarts it from the
 * word, which is read after that: no add is missed. */
__noinline int restart_peak(int64_t *now, int64_t *peak, uint64_t *peak_ns, uint64_t reset_ns, uint64_t now_ns)
{
    if (!now || !peak || !peak_ns)
        return 0;
    uint64_t seen = word_at(peak_ns);
    if (seen >= reset_ns)
        return 0;
    if (__sync_val_compare_and_swap(peak_ns, seen, now_ns > reset_ns ? now_ns : reset_ns) != seen)
        return 0;
    (void)__sync_lock_test_and_set(peak, *(volatile int64_t *)now);
    raise_here(peak, *(volatile int64_t *)now);
    return 1;
}

/* Moves the word from the process's old value over its highest one since to its new one. */
static __always_inline void move_word(int64_t *word, int64_t *peak, uint64_t *peak_ns, int64_t old, int64_t high,
                                      int64_t new, uint64_t now_ns)
{
    int64_t value = add(*word, high - old) + high - old;
    if (raise(peak, value))
        raise((int64_t *)peak_ns, now_ns);
    if (new != high)
        add(*word, new - high);
}

struct claim { /* one row of a batch: as received, then within bounds, with its counters turned into increments */
    struct gp_batch_device said;
    struct gp_map_reset reset;
    uint64_t now_ns;
};

/* was: the row as the sum includes it; NULL: the sum does not include it yet. */
__noinline int sum_move(struct gp_map_sum *sum, const struct claim *to, const struct gp_map_process *was)
{
    if (!sum || !to)
        return 0;
    if (!was)
        add(sum->processes, 1);
    restart_peak(&sum->allocated_bytes, &sum->allocated_peak_bytes, &sum->allocated_peak_ns, to->reset.allocated_ns,
                 to->now_ns);
    restart_peak(&sum->reserved_bytes, &sum->reserved_peak_bytes, &sum->reserved_peak_ns, to->reset.reserved_ns,
                 to->now_ns);
    restart_peak(&sum->asleep_bytes, &sum->asleep_peak_bytes, &sum->asleep_peak_ns, to->reset.allocated_ns, to->now_ns);
    move_word(&sum->allocated_bytes, &sum->allocated_peak_bytes, &sum->allocated_peak_ns,
              was ? was->allocated_bytes : 0, to->said.allocated_high_bytes, to->said.allocated_bytes, to->now_ns);
    move_word(&sum->reserved_bytes, &sum->reserved_peak_bytes, &sum->reserved_peak_ns, was ? was->reserved_bytes : 0,
              to->said.reserved_high_bytes, to->said.reserved_bytes, to->now_ns);
    move_word(&sum->asleep_bytes, &sum->asleep_peak_bytes, &sum->asleep_peak_ns, was ? was->asleep_bytes : 0,
              to->said.asleep_high_bytes, to->said.asleep_bytes, to->now_ns);
    if (to->said.calls)
        add(sum->calls, to->said.calls);
    if (to->said.frees)
        add(sum->frees, to->said.frees);
    if (to->said.failures)
        add(sum->failures, to->said.failures);
    if (to->said.total_bytes > 0 && *(volatile int64_t *)&sum->total_bytes <= 0)
        sum->total_bytes = to->said.total_bytes;
    return 1;
}

static __always_inline void sum_leave(struct gp_map_sum *sum, const struct gp_map_process *row)
{
    add(sum->allocated_bytes, -row->allocated_bytes);
    add(sum->reserved_bytes, -row->reserved_bytes);
    add(sum->asleep_bytes, -row->asleep_bytes);
    add(sum->processes, -1);
}

static __always_inline void sum_start_peaks(struct gp_map_sum *sum, uint64_t now_ns)
{
    raise((int64_t *)&sum->allocated_peak_ns, now_ns);
    raise((int64_t *)&sum->reserved_peak_ns, now_ns);
    raise((int64_t *)&sum->asleep_peak_ns, now_ns);
}

/* ---- leaving --------------------------------------------------------------------------------------------------- */

static __always_inline void leave_container(const struct gp_map_process *row)
{
    struct gp_map_container_key key = {.cgroup_id = row->cgroup_id};
    copy_16(key.uuid, row->uuid);
    struct gp_map_sum *sum = bpf_map_lookup_elem(&container_device, &key);
    if (sum)
        sum_leave(sum, row);
}

static __always_inline void leave_device(const struct gp_map_process *row)
{
    struct gp_map_device_key key;
    copy_16(key.uuid, row->uuid);
    struct gp_map_sum *sum = bpf_map_lookup_elem(&device, &key);
    if (sum)
        sum_leave(sum, row);
}

/* The container's entry may be newer than what it counts: it had no room, or was removed
 * meanwhile. */
static __always_inline void entries_less(uint64_t cgroup_id)
{
    struct gp_map_container *holder = bpf_map_lookup_elem(&container, &cgroup_id);
    if (holder && add(holder->entries, -1) == 0)
        add(holder->entries, 1);
}

static __always_inline void leave_entries(struct gp_map_process *row)
{
    if (!(row->flags & GP_MAP_IN_ENTRIES))
        return;
    row->flags &= ~GP_MAP_IN_ENTRIES;
    entries_less(row->cgroup_id);
}

/* Called before the rows of a batch are processed, by the holder of `busy`. */
__noinline int reserve_end(struct gp_bpf_process *state)
{
    if (!state || !state->reserved_in)
        return 0;
    entries_less(state->reserved_in);
    state->reserved_in = 0;
    return 1;
}

/* Called after them: a process that still has no row takes an entry of its container's share, so
 * that the share limits the table `process` too. state_get checked the limit. */
__noinline int reserve(struct gp_bpf_process *state, uint64_t cgroup_id)
{
    if (!state || state->devices || state->reserved_in)
        return 0;
    struct gp_map_container *holder = bpf_map_lookup_elem(&container, &cgroup_id);
    if (!holder)
        return 0;
    add(holder->entries, 1);
    state->reserved_in = cgroup_id;
    return 1;
}

/* Removes one row of a process from all sums. Not static, so that the verifier checks it once. */
__noinline int take_row(uint32_t tgid, uint32_t index)
{
    struct gp_map_process_key key = {.tgid = tgid, .device = index};
    struct gp_map_process *row = bpf_map_lookup_elem(&process_device, &key);
    if (!row)
        return 0;
    if (row->flags & GP_MAP_IN_CONTAINER)
        leave_container(row);
    if (row->flags & GP_MAP_IN_DEVICE)
        leave_device(row);
    leave_entries(row);
    bpf_map_delete_elem(&process_device, &key);
    return 1;
}

/* The caller holds the process's `busy`. */
static __always_inline void take_rows(uint32_t tgid, struct gp_bpf_process *state)
{
    uint64_t rows = state->devices;
    state->devices = 0;
    for (uint32_t i = 0; i < GP_MAPS_DEVICES_OF_PROCESS; i++) {
        if (!rows)
            break;
        if (rows & 1)
            take_row(tgid, i);
        rows >>= 1;
    }
}

static __always_inline bool take(struct gp_bpf_process *state)
{
    return __sync_val_compare_and_swap(&state->busy, 0, 1) == 0;
}

static __always_inline void give(struct gp_bpf_process *state)
{
    (void)__sync_lock_test_and_set(&state->busy, 0);
}

/* 0; -ENOENT: no such process; -EAGAIN: another program holds it. */
static __noinline int take_process(uint32_t tgid, uint64_t start_ns)
{
    struct gp_bpf_process *state = bpf_map_lookup_elem(&process, &tgid);
    if (!state || (start_ns && state->start_ns != start_ns))
        return -ENOENT;
    if (!take(state))
        return -EAGAIN;
    take_rows(tgid, state);
    reserve_end(state);
    bpf_map_delete_elem(&process, &tgid);
    struct gp_map_meta *counts = meta_get();
    if (counts)
        add(counts->gone, 1);
    return 0;
}

/* Acts on a process's last thread, not its leader: main() may leave by pthread_exit. The kernel
 * decrements `live` before the tracepoint. Two threads may both read 0; the second then finds no
 * entry. */
SEC("tp_btf/sched_process_exit")
int gpuprof_exit(uint64_t *ctx)
{
    struct task_struct *task = (struct task_struct *)ctx[0];
    if (BPF_CORE_READ(task, signal, live.counter) == 0)
        take_process(BPF_CORE_READ(task, tgid), 0);
    return 0;
}

/* At this point exec has ended all other threads and freed the old program's memory. */
SEC("tp_btf/sched_process_exec")
int gpuprof_exec(uint64_t *ctx)
{
    struct task_struct *task = (struct task_struct *)ctx[0];
    take_process(BPF_CORE_READ(task, tgid), 0);
    return 0;
}

/* The agent runs this for a process whose exit was missed. */
SEC("syscall")
int gpuprof_gone(struct gp_bpf_gone *asked)
{
    return take_process(asked->tgid, asked->start_ns);
}

/* ---- arriving -------------------------------------------------------------------------------------------------- */

static __always_inline struct gp_map_container *container_get(uint64_t cgroup_id, struct gp_map_meta *counts)
{
    struct gp_map_container *found = bpf_map_lookup_elem(&container, &cgroup_id);
    if (found)
        return found;
    bpf_map_update_elem(&container, &cgroup_id, &no_container, BPF_NOEXIST);
    found = bpf_map_lookup_elem(&container, &cgroup_id);
    if (!found)
        add(counts->map_full, 1);
    return found;
}

static __always_inline void count_full(struct gp_map_meta *counts, struct gp_map_container *holder)
{
    add(counts->map_full, 1);
    if (holder)
        add(holder->map_full, 1);
}

/* Reserves room in the container's share for one more row of process_device, or for a process that
 * has none yet. */
static __always_inline bool enter_entries(struct gp_map_container *holder)
{
    if (!holder || add(holder->entries, 1) < entries_of_container)
        return true;
    add(holder->entries, -1);
    return false;
}

static __always_inline struct gp_map_sum *container_sum(const struct gp_map_container_key *key,
                                                        struct gp_map_container *holder, uint64_t now_ns,
                                                        bool *is_refused)
{
    struct gp_map_sum *sum = bpf_map_lookup_elem(&container_device, key);
    if (sum)
        return sum;
    if (holder && add(holder->devices, 1) >= GP_MAPS_DEVICES_OF_CONTAINER) {
        add(holder->devices, -1);
        *is_refused = true;
        return NULL;
    }
    long error = bpf_map_update_elem(&container_device, key, &no_sum, BPF_NOEXIST);
    if (error && holder)
        add(holder->devices, -1);
    sum = bpf_map_lookup_elem(&container_device, key);
    if (sum)
        sum_start_peaks(sum, now_ns);
    return sum;
}

static __always_inline struct gp_map_sum *device_sum(const struct gp_map_device_key *key, bool may_make,
                                                     uint64_t now_ns)
{
    struct gp_map_sum *sum = bpf_map_lookup_elem(&device, key);
    if (sum || !may_make)
        return sum;
    bpf_map_update_elem(&device, key, &no_sum, BPF_NOEXIST);
    sum = bpf_map_lookup_elem(&device, key);
    if (sum)
        sum_start_peaks(sum, now_ns);
    return sum;
}

static __always_inline void reset_get(const struct gp_map_device_key *key, struct gp_map_reset *out)
{
    struct gp_map_reset *all = bpf_map_lookup_elem(&reset, &every_device);
    struct gp_map_reset *one = bpf_map_lookup_elem(&reset, key);
    out->allocated_ns = all ? all->allocated_ns : 0;
    out->reserved_ns = all ? all->reserved_ns : 0;
    if (one && one->allocated_ns > out->allocated_ns)
        out->allocated_ns = one->allocated_ns;
    if (one && one->reserved_ns > out->reserved_ns)
        out->reserved_ns = one->reserved_ns;
}

static __always_inline int64_t clamp(int64_t value, int64_t low, int64_t high, uint32_t *clamped)
{
    if (value < low) {
        ++*clamped;
        return low;
    }
    if (value > high) {
        ++*clamped;
        return high;
    }
    return value;
}

/* The increase since the last absolute count: never negative, and bounded. */
static __always_inline int64_t rise(int64_t last, int64_t to, uint32_t *clamped)
{
    return clamp(to, last, last + (1ll << 40), clamped) - last;
}

/* Clamps the numbers of a claim and turns its counters into increments. */
static __always_inline uint32_t claim_make(struct claim *claim, const struct gp_map_process *row)
{
    struct gp_batch_device *said = &claim->said;
    uint32_t clamped = 0;
    if (said->total_bytes <= 0)
        said->total_bytes = -1;
    if (said->total_bytes > GP_MAPS_BYTES_LIMIT) {
        said->total_bytes = GP_MAPS_BYTES_LIMIT;
        clamped++;
    }
    int64_t limit = said->total_bytes > 0 ? said->total_bytes : GP_MAPS_BYTES_LIMIT;
    said->allocated_bytes = clamp(said->allocated_bytes, 0, limit, &clamped);
    said->allocated_high_bytes = clamp(said->allocated_high_bytes, said->allocated_bytes, limit, &clamped);
    said->reserved_bytes = clamp(said->reserved_bytes, 0, limit, &clamped);
    said->reserved_high_bytes = clamp(said->reserved_high_bytes, said->reserved_bytes, limit, &clamped);
    /* Not to the device's size: what sleeps may be more than the device holds at one time. */
    said->asleep_bytes = clamp(said->asleep_bytes, 0, GP_MAPS_BYTES_LIMIT, &clamped);
    said->asleep_high_bytes = clamp(said->asleep_high_bytes, said->asleep_bytes, GP_MAPS_BYTES_LIMIT, &clamped);
    said->calls = rise(row->calls, said->calls, &clamped);
    said->frees = rise(row->frees, said->frees, &clamped);
    said->failures = rise(row->failures, said->failures, &clamped);
    return clamped;
}

static __always_inline void row_move(struct gp_map_process *row, const struct claim *to)
{
    restart_peak(&row->allocated_bytes, &row->allocated_peak_bytes, &row->allocated_peak_ns, to->reset.allocated_ns,
                 to->now_ns);
    restart_peak(&row->reserved_bytes, &row->reserved_peak_bytes, &row->reserved_peak_ns, to->reset.reserved_ns,
                 to->now_ns);
    restart_peak(&row->asleep_bytes, &row->asleep_peak_bytes, &row->asleep_peak_ns, to->reset.allocated_ns, to->now_ns);
    if (raise(&row->allocated_peak_bytes, to->said.allocated_high_bytes))
        row->allocated_peak_ns = to->now_ns;
    if (raise(&row->reserved_peak_bytes, to->said.reserved_high_bytes))
        row->reserved_peak_ns = to->now_ns;
    if (raise(&row->asleep_peak_bytes, to->said.asleep_high_bytes))
        row->asleep_peak_ns = to->now_ns;
    row->allocated_bytes = to->said.allocated_bytes;
    row->reserved_bytes = to->said.reserved_bytes;
    row->asleep_bytes = to->said.asleep_bytes;
    row->total_bytes = to->said.total_bytes;
    /* After the sums, so that those include every call that a reader finds here. */
    row->calls += to->said.calls;
    row->frees += to->said.frees;
    row->failures += to->said.failures;
}

/* Creates a row; NULL if the table or the container's share is full. */
static __always_inline struct gp_map_process *row_make(const struct gp_map_process_key *key, const struct who *who,
                                                       struct gp_map_container *holder)
{
    if (!enter_entries(holder))
        return NULL;
    struct gp_map_process *row = NULL;
    if (bpf_map_update_elem(&process_device, key, &no_row, BPF_NOEXIST) == 0)
        row = bpf_map_lookup_elem(&process_device, key);
    if (!row) {
        if (holder)
            add(holder->entries, -1);
        return NULL;
    }
    row->start_ns = who->start_ns;
    row->cgroup_id = who->cgroup_id;
    row->flags = holder ? GP_MAP_IN_ENTRIES : 0;
    row->allocated_peak_ns = row->reserved_peak_ns = row->asleep_peak_ns = who->now_ns;
    return row;
}

/* Follows a change of the process's container or the row's device: the row leaves the old sums, and
 * sums_move adds it to the new ones with all its bytes. Its calls stay where they were made. Not
 * inlined, to save stack. */
__noinline int row_follow(struct gp_map_process *row, const struct gp_batch_device *said, const struct who *who)
{
    if (!row || !said || !who)
        return 0;
    bool is_other = !same_16(row->uuid, said->uuid);
    bool is_elsewhere = row->cgroup_id != who->cgroup_id;
    if ((is_other || is_elsewhere) && row->flags & GP_MAP_IN_CONTAINER) {
        leave_container(row);
        row->flags &= ~GP_MAP_IN_CONTAINER;
    }
    if (is_other && row->flags & GP_MAP_IN_DEVICE) {
        leave_device(row);
        row->flags &= ~GP_MAP_IN_DEVICE;
    }
    if (is_elsewhere) {
        leave_entries(row);
        row->cgroup_id = who->cgroup_id;
        uint64_t cgroup_id = who->cgroup_id;
        struct gp_map_container *holder = bpf_map_lookup_elem(&container, &cgroup_id);
        if (holder) { /* the row already exists, so no limit is checked */
            add(holder->entries, 1);
            row->flags |= GP_MAP_IN_ENTRIES;
        }
    }
    if (is_other) {
        if (!is_known(row->uuid)) /* no sum includes any of its counters */
            row->calls = row->frees = row->failures = 0;
        copy_16(row->uuid, said->uuid);
    }
    return is_other || is_elsewhere;
}

/* Moves the sums that include the row, and adds it to those that do not include it yet. */
static __always_inline void sums_move(struct gp_map_process *row, struct claim *to, struct gp_map_meta *counts,
                                      struct gp_map_container *holder)
{
    struct gp_map_container_key key = {.cgroup_id = row->cgroup_id};
    copy_16(key.uuid, row->uuid);
    struct gp_map_device_key *device_key = (void *)key.uuid;
    bool is_refused = false;
    struct gp_map_sum *sum = container_sum(&key, holder, to->now_ns, &is_refused);
    if (sum) {
        sum_move(sum, to, row->flags & GP_MAP_IN_CONTAINER ? row : NULL);
        row->flags |= GP_MAP_IN_CONTAINER;
    } else
        count_full(counts, holder);
    sum = device_sum(device_key, !is_refused, to->now_ns);
    if (sum) {
        sum_move(sum, to, row->flags & GP_MAP_IN_DEVICE ? row : NULL);
        row->flags |= GP_MAP_IN_DEVICE;
    } else if (!is_refused)
        count_full(counts, holder);
}

/* Processes one row of a batch, at an address in the process. 0: the row is refused. */
__noinline int device_move(const struct header *header, const struct who *who, struct gp_bpf_process *state,
                           uint64_t from)
{
    struct claim to;
    struct gp_batch_device *said = &to.said;
    struct gp_map_meta *counts = meta_get();
    if (!header || !who || !state || !counts)
        return 0;
    if (bpf_probe_read_user(said, sizeof *said, (void *)from) || said->device < 0 ||
        said->device >= (int)GP_MAPS_DEVICES_OF_PROCESS)
        return 0;
    uint64_t cgroup_id = who->cgroup_id;
    struct gp_map_container *holder = bpf_map_lookup_elem(&container, &cgroup_id);
    struct gp_map_process_key key = {.tgid = who->tgid, .device = said->device};
    struct gp_map_process *row = bpf_map_lookup_elem(&process_device, &key);
    if (!row) {
        row = row_make(&key, who, holder);
        if (!row) {
            count_full(counts, holder);
            return 1;
        }
        copy_16(row->uuid, said->uuid);
        copy_16(row->session_id, header->session_id);
        /* The sums have the bytes that it holds, but none of what it counted before: counters of the machine
         * start at 0 with the agent, so that a restart of it is no increase. */
        if (who->now_ns < state->adopted_until_ns) {
            row->calls = said->calls > 0 ? said->calls : 0;
            row->frees = said->frees > 0 ? said->frees : 0;
            row->failures = said->failures > 0 ? said->failures : 0;
        }
    }
    state->devices |= 1ull << key.device;
    row_follow(row, said, who);
    row->uid = who->uid;
    bpf_probe_read_kernel_str(&row->comm, sizeof row->comm, current()->group_leader->comm);
    uint32_t clamped = claim_make(&to, row);
    if (clamped) {
        add(counts->clamped, clamped);
        if (holder)
            add(holder->refused, clamped);
    }
    to.now_ns = who->now_ns;
    reset_get((const struct gp_map_device_key *)said->uuid, &to.reset);
    if (is_known(said->uuid))
        sums_move(row, &to, counts, holder);
    row_move(row, &to);
    row->lost = header->lost;
    row->seq = header->seq;
    row->last_ns = who->now_ns;
    return 1;
}

#include "events.h" /* needs the maps above */

/* ---- the probe ------------------------------------------------------------------------------------------------- */

static __always_inline uint64_t argument(void *ctx, uint32_t spec)
{
    uint64_t value = 0;
    if (GP_ARG_HOW(spec) == GP_ARG_CONSTANT)
        return GP_ARG_VALUE(spec);
    uint32_t word = GP_ARG_WORD(spec);
    if (word >= GP_ARG_WORDS)
        return 0;
    bpf_probe_read_kernel(&value, sizeof value, ctx + word * 8);
    if (GP_ARG_HOW(spec) == GP_ARG_MEMORY) {
        uint64_t at = value + GP_ARG_VALUE(spec);
        value = 0;
        bpf_probe_read_user(&value, sizeof value, (void *)at);
    }
    return GP_ARG_SHORT(spec) ? (uint32_t)value : value;
}

static __always_inline bool header_is_good(const struct header *header, uint64_t bytes)
{
    if (header->magic != GP_BATCH_MAGIC || header->abi != GP_BATCH_ABI || header->bytes != bytes)
        return false;
    if (header->device_count > GP_BATCH_DEVICES || header->event_count > GP_BATCH_EVENTS || header->seq == 0)
        return false;
    return bytes <= sizeof(struct gp_batch) &&
           bytes >= offsetof(struct gp_batch, events) + header->event_count * sizeof(struct gp_wire_event);
}

/* The process's state; NULL: it has none. It gets one with its first row, since processes that only
 * sleep would fill the table. */
static __always_inline struct gp_bpf_process *state_get(const struct who *who, const struct header *header,
                                                        struct gp_map_container *holder, struct gp_map_meta *counts)
{
    uint32_t tgid = who->tgid;
    struct gp_bpf_process *state = bpf_map_lookup_elem(&process, &tgid);
    if (state || !header->device_count)
        return state;
    if (!enter_entries(holder)) {
        count_full(counts, holder);
        return NULL;
    }
    long error = bpf_map_update_elem(&process, &tgid, &no_process, BPF_NOEXIST);
    state = bpf_map_lookup_elem(&process, &tgid);
    if (holder && (error || !state))
        add(holder->entries, -1);
    else if (holder)
        state->reserved_in = who->cgroup_id;
    if (!state)
        count_full(counts, holder);
    return state;
}

/* false: the batch was received before. */
static __always_inline bool state_advance(struct gp_bpf_process *state, const struct header *header,
                                          const struct who *who, struct gp_map_meta *counts)
{
    if (state->start_ns != who->start_ns || !same_16(state->session_id, header->session_id)) {
        /* Another process had this tgid and its end was missed, or the library was restarted. */
        take_rows(who->tgid, state);
        /* A process with more than GP_BATCH_DEVICES devices tells them in several batches. */
        bool is_new = state->start_ns != who->start_ns;
        state->adopted_until_ns = is_new && who->start_ns < agent_start_ns ? who->now_ns + ADOPT_NS : 0;
        state->start_ns = who->start_ns;
        state->seq = 0;
        state->lost = header->seq > 1 ? header->lost : 0; /* with the first batch of a session; otherwise they were
                                                           * lost before this agent */
        copy_16(state->session_id, header->session_id);
    } else if (header->seq <= state->seq) {
        add(counts->old_batches, 1);
        return false;
    } else if (header->seq - state->seq > 1) {
        uint64_t gap = header->seq - state->seq - 1;
        add(counts->gap_batches, gap > JUMP_LIMIT ? JUMP_LIMIT : gap);
    }
    if (header->lost > state->lost) {
        uint64_t more = header->lost - state->lost;
        add(counts->lost, more > JUMP_LIMIT ? JUMP_LIMIT : more);
        state->lost = header->lost;
    }
    state->seq = header->seq;
    state->cgroup_id = who->cgroup_id;
    return true;
}

static __always_inline void refuse(struct gp_map_meta *counts, struct gp_map_container *holder)
{
    add(counts->refused_batches, 1);
    if (holder)
        add(holder->refused, 1);
}

static __always_inline void events_take(const struct header *header, const struct who *who,
                                        struct gp_map_container *holder, struct gp_map_meta *counts, const void *from)
{
    if (!header->event_count)
        return;
    add(counts->events, header->event_count);
    if (holder)
        add(holder->events, header->event_count);
    if (events_send(header, who, (uint64_t)from + offsetof(struct gp_batch, events)))
        return;
    add(counts->ring_dropped, header->event_count);
    if (holder)
        add(holder->ring_dropped, header->event_count);
}

SEC("uprobe")
int gpuprof_batch(void *ctx)
{
    uint64_t cookie = bpf_get_attach_cookie(ctx);
    const void *from = (void *)argument(ctx, (uint32_t)cookie);
    uint64_t bytes = argument(ctx, cookie >> 32);
    struct gp_map_meta *counts = meta_get();
    if (!counts)
        return 0;
    struct who who = {
        .start_ns = current()->group_leader->start_boottime,
        .cgroup_id = container_id(),
        .now_ns = bpf_ktime_get_ns(),
        .tgid = bpf_get_current_pid_tgid() >> 32,
        .uid = (uint32_t)bpf_get_current_uid_gid(),
    };
    struct gp_map_container *holder = container_get(who.cgroup_id, counts);
    add(counts->batches, 1);
    if (holder)
        add(holder->batches, 1);
    struct header header;
    if (bpf_probe_read_user(&header, sizeof header, from) || !header_is_good(&header, bytes)) {
        refuse(counts, holder);
        return 0;
    }
    struct gp_bpf_process *state = state_get(&who, &header, holder, counts);
    if (!state) {
        events_take(&header, &who, holder, counts, from);
        return 0;
    }
    if (!take(state)) {
        add(counts->raced_batches, 1);
        return 0;
    }
    if (state_advance(state, &header, &who, counts)) {
        reserve_end(state);
        for (uint32_t i = 0; i < GP_BATCH_DEVICES && i < header.device_count; i++)
            if (!device_move(&header, &who, state, (uint64_t)from + sizeof header + i * sizeof(struct gp_batch_device)))
                refuse(counts, holder);
        reserve(state, who.cgroup_id);
        events_take(&header, &who, holder, counts, from);
    }
    give(state);
    return 0;
}
