/* SPDX-License-Identifier: MIT
 *
 * count.bpf.c: a minimal listener at gpuprof:batch, for tests and benchmarks of the side that fires
 * it. It counts by process and, on request, passes whole batches to user space.
 *
 * It also imitates a profiler with probes on the driver's own functions: an aggregation at each
 * call. It has no return probes, so it sees neither addresses nor failures: less than such a
 * profiler needs.
 */
#include <gpuprof/batch.h>
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <stddef.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>

#include "bpf/count.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

const volatile bool keep;

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1024);
    __type(key, __u32);
    __type(value, struct count);
} counts SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 64 << 20);
} kept SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct gp_batch);
} scratch SEC(".maps");

static struct count *count_of(__u32 tgid)
{
    static const struct count zero;
    struct count *count = bpf_map_lookup_elem(&counts, &tgid);
    if (count)
        return count;
    bpf_map_update_elem(&counts, &tgid, &zero, BPF_NOEXIST);
    return bpf_map_lookup_elem(&counts, &tgid);
}

static void count_batch(struct count *count, const struct gp_batch *batch, __u64 bytes)
{
    if (batch->magic != GP_BATCH_MAGIC || batch->abi != GP_BATCH_ABI || batch->bytes != bytes ||
        batch->device_count > GP_BATCH_DEVICES || batch->event_count > GP_BATCH_EVENTS ||
        bytes != offsetof(struct gp_batch, events) + batch->event_count * sizeof(struct gp_wire_event)) {
        count->bad++;
        return;
    }
    count->gaps += batch->seq != count->seq + 1 && count->seq;
    count->seq = batch->seq;
    count->batches++;
    count->events += batch->event_count;
    count->lost = batch->lost;
    count->last += batch->flags & GP_BATCH_LAST;
    for (__u32 i = 0; i < GP_BATCH_DEVICES && i < batch->device_count; i++)
        if (batch->devices[i].device == 0)
            count->device = batch->devices[i];
}

SEC("usdt")
int BPF_USDT(on_batch, const void *pointer, unsigned long bytes)
{
    __u32 zero = 0, tgid = bpf_get_current_pid_tgid() >> 32;
    struct count *count = count_of(tgid);
    struct kept *room = NULL;
    struct gp_batch *batch;
    if (!count)
        return 0;
    if (bytes > sizeof(struct gp_batch))
        bytes = 0;
    if (keep) {
        room = bpf_ringbuf_reserve(&kept, sizeof(*room), 0);
        if (!room) {
            count->dropped++;
            return 0;
        }
        room->tgid = tgid;
        batch = &room->batch;
    } else {
        batch = bpf_map_lookup_elem(&scratch, &zero);
        if (!batch)
            return 0;
    }
    if (bytes < offsetof(struct gp_batch, events) || bpf_probe_read_user(batch, bytes, pointer) != 0)
        count->bad++;
    else
        count_batch(count, batch, bytes);
    if (room)
        bpf_ringbuf_submit(room, 0);
    return 0;
}

/* ---- probes on driver functions ---------------------------------------------------------------------------------- */

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1024);
    __type(key, __u32);
    __type(value, struct peer);
} peers SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4 << 20);
} peer_events SEC(".maps");

static void peer_event(__u8 type, __u64 address, __u64 bytes)
{
    static const struct peer nothing;
    __u64 id = bpf_get_current_pid_tgid();
    __u32 tgid = id >> 32;
    struct peer *peer = bpf_map_lookup_elem(&peers, &tgid);
    if (!peer) {
        bpf_map_update_elem(&peers, &tgid, &nothing, BPF_NOEXIST);
        peer = bpf_map_lookup_elem(&peers, &tgid);
    }
    if (!peer)
        return;
    if (type == GP_EVENT_ALLOC) {
        __s64 now = __sync_fetch_and_add(&peer->bytes, bytes) + bytes;
        if (now > peer->peak)
            peer->peak = now;
        __sync_fetch_and_add(&peer->calls, 1);
    } else {
        __sync_fetch_and_add(&peer->frees, 1);
    }
    struct gp_wire_event *event = bpf_ringbuf_reserve(&peer_events, sizeof(*event), 0);
    if (!event)
        return;
    __builtin_memset(event, 0, sizeof(*event));
    event->time_ns = bpf_ktime_get_ns();
    event->tid = (__u32)id;
    event->type = type;
    event->address = address;
    event->bytes = bytes;
    bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

SEC("uprobe")
int BPF_KPROBE(on_alloc, const void *pointer, unsigned long bytes)
{
    peer_event(GP_EVENT_ALLOC, (__u64)pointer, bytes);
    return 0;
}

SEC("uprobe")
int BPF_KPROBE(on_free, unsigned long address)
{
    peer_event(GP_EVENT_FREE, address, 0);
    return 0;
}
