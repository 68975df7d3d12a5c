/* SPDX-License-Identifier: MIT
 *
 * test_agent_hostile.c: tests the agent under pressure: tables and a ring that are too small,
 * forged batches, floods and very many processes. Rows that have room stay exact; updates without
 * room are counted and reported.
 */
#include "integration/agentcase.h"

TestSuite(agent_hostile, .fini = end, .timeout = 180);

/* ---- losses ------------------------------------------------------------------------------------------------------ */

static void begin_tiny(void)
{
    begin_with((const char *[]){"--listen", "127.0.0.1:0", "--max-processes", "4", "--max-containers", "2", NULL});
}

static void wait_full(uint64_t above, struct gp_map_meta *meta)
{
    for (int i = 0; i < 2000 && agent_meta(&place, meta) == 0 && meta->map_full <= above; i++)
        usleep(10000);
    cr_assert(gt(u64, meta->map_full, above));
}

/* The number printed after these words. */
static uint64_t printed_number(const char *text, const char *words)
{
    const char *at = strstr(text, words);
    cr_assert(at != NULL, "no '%s' in: %s", words, text);
    return strtoull(at + strlen(words), NULL, 10);
}

/* The processes are idle, so NUMBER, which was read after the agent had refused BEFORE updates, is BEFORE; unless a viewer of
 * another test has asked the process without a row meanwhile, which is refused once more. */
static void expect_refused(uint64_t number, uint64_t before)
{
    struct gp_map_meta after;
    cr_assert(agent_meta(&place, &after) == 0);
    cr_assert(ge(u64, number, before));
    cr_assert(le(u64, number, after.map_full));
}

Test(agent_hostile, full_tables_are_exact_where_there_is_room_and_count_the_rest, .init = begin_tiny)
{
    struct gp_map_meta meta;
    for (int i = 0; i < 4; i++)
        walk_with(groups[i % 2], (i + 1) * 2 * MIB);
    cr_assert(agent_meta(&place, &meta) == 0);
    cr_assert(eq(u64, meta.map_full, 0));
    struct kid *fifth = walk(groups[2]);
    cr_assert(ge(i64, kid_tell(fifth, "a 0 %lld", 32 * MIB), 0));
    wait_full(0, &meta);
    cr_assert(eq(i64, device_sum(0).allocated_bytes, 20 * MIB), "wrong sum of the processes with a row");
    cr_assert(eq(i64, container_sum(groups[0], 0).allocated_bytes, 8 * MIB));
    cr_assert(eq(i64, container_sum(groups[1], 0).allocated_bytes, 12 * MIB));
    cr_assert(gt(u64, share(groups[2]).map_full + (share(groups[2]).batches == 0), 0),
              "its container does not count it");
    usleep(300000);
    cr_assert(agent_meta(&place, &meta) == 0);
    json_t *top = top_json();
    expect_refused((uint64_t)number(json_object_get(top, "agent"), "map_full"), meta.map_full);
    cr_assert(eq(i64, number(top_device(top, 0), "allocated_bytes"), 20 * MIB));
    json_decref(top);
    char *words = command_words("top", "--system", "--pins", place.pins, NULL);
    expect_refused(printed_number(words, "not counted: "), meta.map_full);
    cr_assert(strstr(words, " updates, because the agent's tables were full") != NULL, "%s", words);
    free(words);
    char *page = agent_get(agent.port, "/metrics");
    cr_assert(page != NULL);
    expect_refused((uint64_t)agent_sample(page, "gpuprof_map_updates_refused_total"), meta.map_full);
    free(page);
    /* When room is free, a process without a row gets one with its next batch. */
    kid_end(&kids[0], SIGKILL);
    kid_end(&kids[2], SIGKILL);
    cr_assert(ge(i64, kid_tell(fifth, "a 0 %lld", 2 * MIB), 0));
    settle(fifth, 0, 2, 0);
    cr_assert(eq(i64, device_sum(0).allocated_bytes, (12 + 34) * MIB));
}

/* stat queries the processes too. */
Test(agent_hostile, stat_reports_updates_without_room, .init = begin_tiny)
{
    struct gp_map_meta before;
    for (int i = 0; i < 4; i++)
        walk_with(groups[0], 2 * MIB);
    kid_tell(walk(groups[1]), "a 0 %lld", 2 * MIB);
    wait_full(0, &before);
    char *words = command_words("stat", "--all", "--pins", place.pins, NULL);
    expect_refused(printed_number(words, "the agent did not count "), before.map_full);
    free(words);
}

static void begin_small_ring(void)
{
    begin_with((const char *[]){"--listen", "127.0.0.1:0", "--ring", "64KiB", NULL});
}

/* A ring of a thousand events without a reader: the agent is stopped for a moment. */
Test(agent_hostile, a_full_ring_loses_events_and_no_byte, .init = begin_small_ring)
{
    struct gp_map_meta before, meta;
    struct kid *kid = walk_with(groups[0], 4 * MIB);
    usleep(300000); /* the program is idle: all its batches have been fired */
    cr_assert(agent_meta(&place, &before) == 0);
    cr_assert(spawn_stop(agent.pid) == 0);
    long long answer = kid_tell(kid, "c 5000 %lld", 2 * MIB);
    kill(agent.pid, SIGCONT);
    cr_assert(eq(i64, answer, 0));
    settle(kid, 0, 5001, 5000);
    struct gp_map_sum sum = device_sum(0);
    cr_assert(eq(i64, sum.allocated_bytes, 4 * MIB));
    cr_assert(eq(i64, sum.allocated_peak_bytes, 6 * MIB), "the peak is wrong");
    cr_assert(eq(i64, sum.calls, 5001));
    usleep(300000);
    cr_assert(agent_meta(&place, &meta) == 0);
    cr_assert(gt(u64, meta.ring_dropped, 0));
    cr_assert(eq(u64, share(groups[0]).ring_dropped, meta.ring_dropped));
    cr_assert(eq(u64, meta.events + meta.lost, before.events + before.lost + 10000),
              "an event was neither received nor counted");
    json_t *top = top_json();
    cr_assert(eq(i64, number(json_object_get(top, "agent"), "ring_dropped"), (int64_t)meta.ring_dropped));
    json_decref(top);
    char *page = agent_get(agent.port, "/metrics");
    cr_assert(page != NULL);
    cr_assert(
        eq(dbl, agent_sample(page, "gpuprof_events_dropped_total{reason=\"ring_full\"}"), (double)meta.ring_dropped));
    free(page);
}

/* ---- hostile ----------------------------------------------------------------------------------------------------- */

static char fire_file[160];

/* The probe is in another program, which is armed like a library. */
static void begin_firing(const char *const *more)
{
    const char *all[16] = {"--library", fire_file};
    make_place();
    const char *copy = place_copy(&place, path_program("probe_fire"), "probe_fire");
    cr_assert(copy != NULL);
    snprintf(fire_file, sizeof fire_file, "%s", copy);
    for (int i = 0; more && more[i]; i++)
        all[2 + i] = more[i];
    start_agent(&(struct agent_options){.more = all});
}

static void begin_hostile(void)
{
    begin_firing(NULL);
}

static struct kid *firer(int group, int uid)
{
    struct kid *kid = &kids[kid_count++];
    cr_assert(kid_start(kid, &place, &(struct kid_options){.file = fire_file, .group = group, .library = ""}) == 0);
    if (uid)
        cr_assert(eq(i64, kid_tell(kid, "u %d", uid), 0));
    return kid;
}

/* `m` takes one byte that is repeated as the UUID; no GPU of the simulator has such a UUID. */
#define FORGED 0x77

static int64_t forged_bytes(void)
{
    struct gp_map_device_key key;
    struct gp_map_sum sum = {0};
    memset(key.uuid, FORGED, 16);
    bpf_map_lookup_elem(device_fd, &key, &sum);
    return sum.allocated_bytes;
}

Test(agent_hostile, a_forger_of_another_user_changes_only_its_own_containers_numbers, .init = begin_hostile)
{
    struct kid *victim = walk_with(groups[0], 16 * MIB);
    struct gp_map_sum before = container_sum(groups[0], 0), device = device_sum(0), after;
    struct gp_map_process row, row_after;
    cr_assert(row_of(victim->pid, 0, &row));
    struct kid *liar = firer(groups[1], OTHERS);
    for (int how = 0; how <= 11; how++)
        kid_tell(liar, "h %d", how);
    kid_tell(liar, "m 0 %d %lld %lld %lld %lld 5 %lld", FORGED, 1ll << 62, 1ll << 62, 1ll << 62, 1ll << 62, 8 * GIB);
    cr_assert(eq(i64, forged_bytes(), 8 * GIB), "not cut to the claimed size of the device");
    kid_tell(liar, "m 0 %d %lld %lld %lld %lld 5 -7", FORGED, 1ll << 62, 1ll << 62, 1ll << 62, 1ll << 62);
    cr_assert(eq(i64, forged_bytes(), GP_MAPS_BYTES_LIMIT));
    kid_tell(liar, "m 0 %d %lld 0 %lld 0 -5 %lld", FORGED, -(1ll << 40), -(1ll << 62), 8 * GIB);
    cr_assert(eq(i64, forged_bytes(), 0));
    kid_tell(liar, "r 20000");
    kid_tell(liar, "o");
    after = container_sum(groups[0], 0);
    cr_assert(memcmp(&before, &after, sizeof before) == 0, "the victim's container changed");
    after = device_sum(0);
    cr_assert(memcmp(&device, &after, sizeof device) == 0, "a device changed that the forger did not name");
    cr_assert(row_of(victim->pid, 0, &row_after));
    row.seq = row_after.seq; /* the victim repeats its batches for a while */
    row.last_ns = row_after.last_ns;
    cr_assert(memcmp(&row, &row_after, sizeof row) == 0, "the victim's row changed");
    struct gp_map_process_key key = {.tgid = (uint32_t)liar->pid};
    cr_assert(bpf_map_lookup_elem(process_fd, &key, &row) == 0);
    cr_assert(eq(u32, row.uid, OTHERS), "the identity is not the kernel's");
    cr_assert(eq(u64, row.cgroup_id, place.groups[groups[1]].id));
    cr_assert(ge(u64, share(groups[1]).refused, 12));
    cr_assert(eq(u64, share(groups[0]).refused, 0));
    kid_end(liar, SIGKILL);
    cr_assert(eq(i64, forged_bytes(), 0));
    cr_assert(agent_heartbeat_age_ns(&place) < 5000000000ull);
}

/* The forger claims the victims' own GPU: the device's sum has the claim while the forger lives,
 * and no byte after. */
Test(agent_hostile, a_forged_claim_on_a_real_gpu_leaves_its_sum_unchanged, .init = begin_hostile)
{
    walk_with(groups[0], 16 * MIB);
    struct gp_map_sum before = container_sum(groups[0], 0), after;
    struct kid *liar = firer(groups[1], OTHERS);
    for (int i = 0; i < 200; i++)
        kid_tell(liar, "m %d %d %lld %lld 1 1 1 %lld", i % 64, i % 255 + 1, i * MIB, i * MIB, GIB);
    kid_tell(liar, "r 5000");
    kid_tell(liar, "x");
    kid_end(liar, SIGKILL);
    after = container_sum(groups[0], 0);
    cr_assert(memcmp(&before, &after, sizeof before) == 0, "the victim's container changed");
    cr_assert(eq(i64, device_sum(0).allocated_bytes, 16 * MIB));
    cr_assert(eq(u64, share(groups[1]).entries, 0));
}

Test(agent_hostile, a_flood_costs_the_quiet_tenants_nothing, .init = begin_hostile)
{
    struct kid *quiet[2] = {walk_with(groups[0], 2 * MIB), walk_with(groups[2], 2 * MIB)};
    struct kid *flood = firer(groups[1], OTHERS);
    uint64_t before[2];
    for (int i = 0; i < 2; i++) /* the context's and the allocation's, which may come a batch later than the bytes */
        while ((before[i] = share(groups[2 * i]).events) < 2)
            usleep(200);
    kid_send(flood, "e 256 20000"); /* five million events as fast as they go */
    int rounds = 0;
    for (; rounds < 40; rounds++) {
        for (int i = 0; i < 2; i++)
            cr_assert(eq(i64, kid_tell(quiet[i], "c 10 %lld", 2 * MIB), 0));
        usleep(10000);
    }
    cr_assert(eq(i64, kid_answer(flood), 0));
    for (int i = 0; i < 2; i++) {
        settle(quiet[i], 0, 1 + rounds * 10, rounds * 10);
        int group = groups[2 * i];
        cr_assert(eq(i64, container_sum(group, 0).allocated_bytes, 2 * MIB));
        cr_assert(eq(u64, share(group).ring_dropped, 0), "a quiet tenant lost events");
        cr_assert(eq(u64, share(group).events - before[i], (uint64_t)rounds * 20));
    }
    cr_assert(gt(u64, share(groups[1]).ring_dropped, 0), "the flood did not flood");
    cr_assert(agent_heartbeat_age_ns(&place) < 5000000000ull, "the agent's heartbeat is late");
}

static void begin_many(void)
{
    begin_firing((const char *[]){"--listen", "127.0.0.1:0", "--metrics-series", "200", "--metrics-per-process=pid",
                                  "--max-processes", "256", NULL});
}

static unsigned map_rows(int fd, size_t key_bytes)
{
    char key[64], next[64];
    unsigned rows = 0;
    for (void *from = NULL; rows < 1000000 && bpf_map_get_next_key(fd, from, next) == 0; rows++) {
        memcpy(key, next, key_bytes);
        from = key;
    }
    return rows;
}

static double page_number(const char *family)
{
    char *page = agent_get(agent.port, "/metrics");
    cr_assert(page != NULL);
    double value = agent_sample(page, family);
    free(page);
    return value;
}

Test(agent_hostile, many_short_processes_take_no_room, .init = begin_many, .timeout = 900)
{
    const char *many = getenv("GPUPROF_TEST_MANY");
    long times = many ? atol(many) : 2000;
    struct kid *kid = firer(groups[0], 0);
    double series = 0, memory = page_number("process_resident_memory_bytes"),
           descriptors = page_number("process_open_fds");
    kid_send(kid, "f %ld", times);
    struct pollfd answer = {.fd = fileno(kid->from), .events = POLLIN};
    while (poll(&answer, 1, 50) == 0) {
        double now = page_number("gpuprof_exporter_series");
        series = now > series ? now : series;
    }
    cr_assert(eq(i64, kid_answer(kid), 0));
    struct gp_map_meta meta;
    cr_assert(agent_meta(&place, &meta) == 0);
    cr_assert(eq(u64, meta.map_full, 0));
    cr_assert(ge(u64, meta.gone, (uint64_t)times));
    cr_assert(eq(u64, share(groups[0]).entries, 0));
    cr_assert(eq(uint, map_rows(process_fd, sizeof(struct gp_map_process_key)), 0));
    cr_assert(eq(uint, map_rows(container_fd, sizeof(struct gp_map_container_key)), 1));
    cr_assert(le(dbl, series, 200));
    double grown = page_number("process_resident_memory_bytes") - memory;
    double more = page_number("process_open_fds") - descriptors;
    cr_log_info("%ld processes: at most %.0f series, the agent grew by %.0f KiB and %.0f descriptors", times, series,
                grown / 1024, more);
    cr_assert(lt(dbl, grown, 16.0 * MIB));
    cr_assert(lt(dbl, more, 64));
}

static void begin_churn(void)
{
    begin_firing(
        (const char *[]){"--listen", "127.0.0.1:0", "--metrics-series", "200", "--max-containers", "64", NULL});
}

/* Creates and removes more than three times the containers that the tables have room for. */
Test(agent_hostile, many_short_containers_make_room_for_the_next, .init = begin_churn)
{
    enum { TIMES = 200 };
    double series = 0;
    for (int i = 0; i < TIMES; i++) {
        int group = place_group(&place, false);
        cr_assert(group >= 0);
        kid_count = 0;
        struct kid *kid = firer(group, 0);
        kid_tell(kid, "m 0 %d %lld %lld 1 1 1 %lld", FORGED, MIB, MIB, GIB);
        kid_end(kid, SIGKILL);
        cr_assert(eq(int, place_group_remove(&place, group), 0));
        if (i % 20 == 0) {
            double now = page_number("gpuprof_exporter_series");
            series = now > series ? now : series;
        }
    }
    unsigned rows = 1;
    for (int i = 0; i < 400 && rows; i++) {
        rows = map_rows(container_fd, sizeof(struct gp_map_container_key)) + map_rows(share_fd, 8);
        usleep(50000);
    }
    struct gp_map_meta meta;
    cr_assert(agent_meta(&place, &meta) == 0);
    cr_log_info("%d containers: at most %.0f series, %llu updates found no room", TIMES, series,
                (unsigned long long)meta.map_full);
    cr_assert(eq(uint, rows, 0), "rows of removed cgroups");
    cr_assert(le(dbl, series, 200));
    kid_count = 0;
    struct gp_map_sum sum;
    memset(uuids[0], FORGED, 16);
    kid_tell(firer(groups[0], 0), "m 0 %d %lld %lld 1 1 1 %lld", FORGED, MIB, MIB, GIB);
    cr_assert(container_row(groups[0], 0, &sum));
    cr_assert(eq(i64, sum.allocated_bytes, MIB));
}
