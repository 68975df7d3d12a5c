/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * events.h: copies the events of a batch into the ring, within the container's share. For
 * gpuprof.bpf.c alone, which includes it after its maps and structs.
 */
#ifndef GP_BPF_EVENTS_H
#define GP_BPF_EVENTS_H

/* Takes slots from the container's own share. The bucket is one word: when it is full again. */
static __always_inline bool bucket_take(struct gp_map_container *holder, uint64_t now_ns, uint32_t slots)
{
    for (int i = 0; i < 4; i++) {
        uint64_t seen = word_at(&holder->bucket_ns);
        uint64_t from = seen > now_ns ? seen : now_ns;
        uint64_t to = from + slots * event_cost_ns;
        if (to - now_ns > bucket_ns)
            return false;
        if (__sync_val_compare_and_swap(&holder->bucket_ns, seen, to) == seen)
            return true;
    }
    return false;
}

#define RECORD_OF(_slots)                                                                                              \
    static __always_inline bool record_##_slots(const struct who *who, const struct header *header, const void *from,  \
                                                uint32_t count, uint64_t flags)                                        \
    {                                                                                                                  \
        struct gp_map_record *record =                                                                                 \
            bpf_ringbuf_reserve(&events, sizeof *record + _slots * sizeof record->events[0], 0);                       \
        if (!record)                                                                                                   \
            return false;                                                                                              \
        uint64_t size = count * sizeof record->events[0];                                                              \
        asm volatile("" : "+r"(size)); /* else the compiler checks a copy and older verifiers lose the bound */        \
        if (size > _slots * sizeof record->events[0] || bpf_probe_read_user(record->events, size, from)) {             \
            bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);                                                             \
            return false;                                                                                              \
        }                                                                                                              \
        record_head(record, who, header, count);                                                                       \
        bpf_ringbuf_submit(record, flags);                                                                             \
        return true;                                                                                                   \
    }

static __always_inline void record_head(struct gp_map_record *record, const struct who *who,
                                        const struct header *header, uint32_t count)
{
    record->cgroup_id = who->cgroup_id;
    record->start_ns = who->start_ns;
    record->tgid = who->tgid;
    record->uid = who->uid;
    bpf_probe_read_kernel_str(&record->comm, sizeof record->comm, current()->group_leader->comm);
    copy_16(record->session_id, header->session_id);
    record->seq = header->seq;
    record->time_ns = header->time_ns;
    record->count = count;
    record->pad_ = 0;
}

RECORD_OF(8)
RECORD_OF(64)
RECORD_OF(256)

__noinline int events_send(const struct header *header, const struct who *who, uint64_t at)
{
    if (!header || !who)
        return 0;
    const void *from = (const void *)at;
    uint64_t cgroup_id = who->cgroup_id;
    struct gp_map_container *holder = bpf_map_lookup_elem(&container, &cgroup_id);
    uint32_t count = header->event_count;
    uint32_t slots = count <= 8 ? 8 : count <= 64 ? 64 : 256;
    uint64_t waiting = bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA);
    bool is_quiet = holder && bucket_take(holder, who->now_ns, slots);
    if (!is_quiet && waiting >= ring_shared_bytes)
        return 0;
    /* A wake-up for each batch would cost the process more than the rest of this program. */
    uint64_t flags = waiting >= ring_wake_bytes ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
    if (count <= 8)
        return record_8(who, header, from, count, flags);
    if (count <= 64)
        return record_64(who, header, from, count, flags);
    return record_256(who, header, from, count, flags);
}

#endif
