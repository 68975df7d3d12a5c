/* SPDX-License-Identifier: MIT
 * test_write.c: names, numbers and layouts that scripts rely on. */
#include <cmd/cmd.h>
#include <lib/session.h>
#include <show/text/stats.h>
#include <show/text/write.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

Test(write, keys_are_pytorch_s)
{
    const struct gp_stat_key *keys = gp_stat_keys;
    static const char *const samples[] = {"active.all.allocated",
                                          "allocated_bytes.all.peak",
                                          "allocation.small_pool.current",
                                          "inactive_split_bytes.large_pool.freed",
                                          "max_split_size",
                                          "num_alloc_retries",
                                          "num_device_alloc",
                                          "num_device_free",
                                          "num_ooms",
                                          "num_sync_all_streams",
                                          "oversize_allocations.current",
                                          "oversize_segments.peak",
                                          "requested_bytes.all.allocated",
                                          "reserved_bytes.all.current",
                                          "segment.small_pool.freed"};
    cr_assert_str_eq(keys[0].name, "active.all.allocated");
    cr_assert_str_eq(keys[12].name, "active_bytes.all.allocated", "'.' sorts before '_'");
    cr_assert_str_eq(keys[121].name, "segment.small_pool.peak");
    cr_assert_str_eq(keys[122].name, "asleep_bytes.allocated"); /* later additions */
    for (int i = 0; i + 1 < 122; i++)
        cr_assert_lt(strcmp(keys[i].name, keys[i + 1].name), 0, "%s", keys[i].name);
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        int found = 0;
        for (int k = 0; k < GP_STAT_KEYS; k++)
            found += strcmp(keys[k].name, samples[i]) == 0;
        cr_assert_eq(found, 1, "%s", samples[i]);
    }
}

/* Every key reads its own field: each field gets another value. */
Test(write, keys_read_their_own_field)
{
    struct gp_wire_device d;
    memset(&d, 0, sizeof(d));
    const struct gp_stat_key *keys = gp_stat_keys;
    for (int i = 0; i < GP_STAT_KEYS; i++) {
        int64_t value = i + 1;
        memcpy((char *)&d + keys[i].offset, &value, sizeof(value));
    }
    for (int i = 0; i < GP_STAT_KEYS; i++)
        cr_assert_eq(gp_stat_get(&d, &keys[i]), i + 1, "%s shares its field", keys[i].name);
    struct gp_wire_device e;
    memset(&e, 0, sizeof(e));
    e.stats[GP_STAT_RESERVED_BYTES][GP_POOL_SMALL].freed = 77;
    e.oversize_segments.peak = 78;
    e.num_ooms = 79;
    for (int i = 0; i < GP_STAT_KEYS; i++) {
        int64_t want = strcmp(keys[i].name, "reserved_bytes.small_pool.freed") == 0 ? 77
                       : strcmp(keys[i].name, "oversize_segments.peak") == 0        ? 78
                       : strcmp(keys[i].name, "num_ooms") == 0                      ? 79
                                                                                    : 0;
        cr_assert_eq(gp_stat_get(&e, &keys[i]), want, "%s", keys[i].name);
    }
}

Test(write, reset_groups)
{
    int allocated = 0, reserved = 0, both = 0;
    for (unsigned stat = 0; stat < GP_STATS; stat++) {
        allocated += gp_reset_touches(GP_RESET_ALLOCATED, stat);
        reserved += gp_reset_touches(GP_RESET_RESERVED, stat);
        both += gp_reset_touches(GP_RESET_PEAKS, stat) && gp_reset_touches(GP_RESET_ACCUMULATED, stat);
        cr_assert_neq(gp_reset_touches(GP_RESET_ALLOCATED, stat), gp_reset_touches(GP_RESET_RESERVED, stat));
    }
    cr_assert_eq(allocated, 5);
    cr_assert_eq(reserved, 4);
    cr_assert_eq(both, GP_STATS);
}

static char *summary(const struct gp_device_view *view)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    gp_summary_print(out, view);
    fclose(out);
    return text;
}

Test(write, summary_layout)
{
    struct gp_device_view view;
    memset(&view, 0, sizeof(view));
    view.wire.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL] =
        (struct gp_wire_value){786431, 786432, 3ll << 30, 805306368};
    view.wire.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_LARGE] = (struct gp_wire_value){786431, 1023, 1ll << 30, 1};
    view.wire.stats[GP_STAT_ALLOCATION][GP_POOL_ALL] = (struct gp_wire_value){749999, 750000, 750000000, 0};
    view.wire.num_ooms = 3;
    view.wire.num_alloc_retries = 12;
    char *text = summary(&view), *line = text;
    int lines = 0;
    for (char *end; (end = strchr(line, '\n')); line = end + 1, lines++)
        cr_assert_eq(end - line, 77, "line %d is %td wide", lines + 1, end - line);
    cr_assert_eq(lines, 47);
    static const char *const wanted[] = {
        "|                  PyTorch CUDA memory summary, device ID 0                 |\n",
        "|            CUDA OOMs: 3            |        cudaMalloc retries: 12        |\n",
        "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |\n",
        "| Allocated memory      | 786431 B   |    768 KiB |   3072 MiB |    768 MiB |\n",
        "|       from large pool | 786431 B   |      0 KiB |   1024 MiB |      0 MiB |\n",
        "| Allocations           |  749999    |     750 K  |     750 M  |       0    |\n",
        "| GPU reserved segments |       0    |       0    |       0    |       0    |\n",
        "| Oversize GPU segments |       0    |       0    |       0    |       0    |\n",
    };
    const char *at = text;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        at = at ? strstr(at, wanted[i]) : NULL;
        cr_assert(at, "missing or out of order: %s in\n%s", wanted[i], text);
    }
    free(text);
}

Test(write, what_a_framework_does_not_tell_is_unknown)
{
    struct gp_device_view view;
    memset(&view, 0, sizeof(view));
    view.wire.stats[GP_STAT_REQUESTED_BYTES][GP_POOL_ALL].current = 512;
    view.wire.flags = GP_DEVICE_FRAMEWORK;
    char *text = summary(&view), *line = text;
    for (char *end; (end = strchr(line, '\n')); line = end + 1)
        cr_assert_eq(end - line, 77, "%.*s", (int)(end - line), line);
    cr_assert(strstr(text, "| Requested memory      |      -     |      -     |      -     |      -     |\n"), "%s",
              text);
    cr_assert(strstr(text, "| Non-releasable allocs |       -    |       -    |"), "%s", text);
    cr_assert(strstr(text, "| Active memory         |      -     |      -     |"), "%s", text);
    cr_assert(strstr(text, "| Allocated memory      |      0 B   |"), "%s", text);
    free(text);
    int unknown = 0;
    for (int i = 0; i < GP_STAT_KEYS; i++)
        unknown += gp_stat_get(&view.wire, &gp_stat_keys[i]) == -1;
    cr_assert_eq(unknown, 60, "five statistics of three pools");
}

Test(write, sizes_as_text)
{
    static const struct {
        int64_t bytes;
        const char *text;
    } cases[] = {{-1, "-"},
                 {0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1.000 KiB"},
                 {1536, "1.500 KiB"},
                 {10 << 20, "10.00 MiB"},
                 {(1ll << 30) - 1, "1.000 GiB"},
                 {16ll << 30, "16.00 GiB"},
                 {999ll << 30, "999.0 GiB"},
                 {INT64_MAX, "8.000 EiB"}};
    char text[GP_SIZE_TEXT];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        cr_assert_str_eq(gp_size_text(text, cases[i].bytes), cases[i].text);
}

Test(parse, durations)
{
    static const char *const bad[] = {"", "5", "ms", "-1s", "+1s", " 1s", "1 s", "1.s", ".5s", "1e3s", "1,5s", "1sec"};
    uint64_t ns = 0;
    cr_assert(gp_parse_duration("0s", &ns) == 0 && ns == 0);
    cr_assert(gp_parse_duration("7ns", &ns) == 0 && ns == 7);
    cr_assert(gp_parse_duration("350ms", &ns) == 0 && ns == 350000000);
    cr_assert(gp_parse_duration("2.5s", &ns) == 0 && ns == 2500000000u);
    cr_assert(gp_parse_duration("0.000001234s", &ns) == 0 && ns == 1000);
    cr_assert(gp_parse_duration("1.5h", &ns) == 0 && ns == 5400000000000ull);
    cr_assert(gp_parse_duration("999999.999999h", &ns) == 0);
    cr_assert_eq(gp_parse_duration("9999999h", &ns), -ERANGE);
    cr_assert_eq(gp_parse_duration("99999999999999999999s", &ns), -ERANGE);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_assert_eq(gp_parse_duration(bad[i], &ns), -EINVAL, "'%s'", bad[i]);
}

Test(write, sizes_from_text)
{
    int64_t bytes;
    cr_assert(gp_text_size_parse("0", &bytes) == 0 && bytes == 0);
    cr_assert(gp_text_size_parse("17B", &bytes) == 0 && bytes == 17);
    cr_assert(gp_text_size_parse("4K", &bytes) == 0 && bytes == 4096);
    cr_assert(gp_text_size_parse("4kib", &bytes) == 0 && bytes == 4096);
    cr_assert(gp_text_size_parse("16GiB", &bytes) == 0 && bytes == 16ll << 30);
    cr_assert(gp_text_size_parse("8388607T", &bytes) == 0 && bytes == 8388607ll << 40);
    cr_assert_eq(gp_text_size_parse("8388608T", &bytes), -ERANGE);
    cr_assert_eq(gp_text_size_parse("99999999999999999999", &bytes), -ERANGE);
    static const struct {
        const char *text;
        int64_t bytes;
    } good[] = {{"7.5GiB", 15ll << 29},
                {"7.514GiB", 8068096065ll}, /* 8068096065.54: a part of a byte is left out */
                {"8 GiB", 8ll << 30},
                {"8  gb", 8000000000},
                {"8GB", 8000000000},
                {"1.5kB", 1500},
                {"24Gi", 24ll << 30},
                {"0.5T", 1ll << 39},
                {"0.1GB", 100000000},
                {"16e9", 16000000000},
                {"1.5e3MB", 1500000000},
                {"1.99999999999999999999MiB", (2 << 20) - 1},
                {"0.000000000000000001TiB", 0},
                {"1048576", 1 << 20}};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        cr_assert(gp_text_size_parse(good[i].text, &bytes) == 0 && bytes == good[i].bytes, "%s: %" PRId64, good[i].text,
                  bytes);
    static const char *const large[] = {"1e30", "9223372036854775808", "9223373TB", "1e18KB", "8388607.9e9T"};
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++)
        cr_assert_eq(gp_text_size_parse(large[i], &bytes), -ERANGE, "'%s'", large[i]);
    static const char *const bare[] = {"1", "20", "22.5", "1048575", "1e3"};
    for (size_t i = 0; i < sizeof(bare) / sizeof(bare[0]); i++)
        cr_assert_eq(gp_text_size_parse(bare[i], &bytes), -EDOM, "'%s'", bare[i]);
    char why[GP_TEXT_WHY];
    cr_assert_str_eq(gp_text_size_why(why, "22.5"), "a number without a unit: did you mean 22.5GiB? 22.5B is bytes");
    cr_assert_str_eq(gp_text_size_why(why, "1e30"), "out of range");
    static const char *const bad[] = {"",   "K",   "-1",  "+1",   " 1",     "1 ",    "0x10", "1e",  "GiB1", "1.",
                                      ".5", "1.G", "1,5", "1e-3", "1.5.5G", "1KiBB", "1iB",  "inf", "1\tK", "1PB"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_assert_eq(gp_text_size_parse(bad[i], &bytes), -EINVAL, "'%s'", bad[i]);
}

Test(write, percentages_from_text)
{
    double percent = 0;
    cr_assert(gp_text_percent_parse("80%", &percent) == 0 && percent == 80);
    cr_assert(gp_text_percent_parse("100%", &percent) == 0 && percent == 100);
    cr_assert(gp_text_percent_parse("0.25%", &percent) == 0 && percent == 0.25);
    static const char *const outside[] = {"0%", "0.0%", "100.5%", "101%", "99999999999999999999%"};
    for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++)
        cr_assert_eq(gp_text_percent_parse(outside[i], &percent), -ERANGE, "'%s'", outside[i]);
    static const char *const bad[] = {"", "%", "80", "-1%", " 8%", "8 %", "1.%", "1e1%", "8%%"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_assert_eq(gp_text_percent_parse(bad[i], &percent), -EINVAL, "'%s'", bad[i]);
}

Test(write, pids_and_devices_from_text)
{
    pid_t *pids = NULL;
    int count = 0, device = -7;
    cr_assert(gp_parse_pids("12,7,12", &pids, &count) == 0 && count == 2 && pids[0] == 12 && pids[1] == 7);
    free(pids);
    static const char *const bad[] = {"", ",", "1,", ",1", "0", "-1", "1 2", "x", "2147483648", "99999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_assert_eq(gp_parse_pids(bad[i], &pids, &count), -EINVAL, "'%s'", bad[i]);
    cr_assert(gp_parse_device("63", &device) == 0 && device == 63);
    cr_assert(gp_parse_device("host", &device) == 0 && device == (int)GP_WIRE_HOST);
    cr_assert_eq(gp_parse_device("64", &device), -ERANGE);
    cr_assert_eq(gp_parse_device("-1", &device), -EINVAL);
    cr_assert_eq(gp_parse_device("1x", &device), -EINVAL);
}

Test(write, event_as_json_and_line)
{
    struct gp_trace_place place = {.pid = 5, .start_ns = 1000000000};
    struct gp_wire_event event = {.seq = 9,
                                  .time_ns = 3500000000,
                                  .address = UINT64_MAX,
                                  .bytes = 4096,
                                  .requested_bytes = 4000,
                                  .tid = 6,
                                  .type = GP_EVENT_ALLOC,
                                  .kind = GP_KIND_LINEAR,
                                  .device = 1};
    json_t *object = gp_event_json(&place, &event);
    cr_assert_str_eq(json_string_value(json_object_get(object, "address")), "0xffffffffffffffff");
    cr_assert_str_eq(json_string_value(json_object_get(object, "event")), "alloc");
    cr_assert_eq(json_integer_value(json_object_get(object, "size_bytes")), 4096);
    cr_assert(json_is_null(json_object_get(object, "site")));
    json_decref(object);
    event = (struct gp_wire_event){.time_ns = 1000000000, .name = "a\033b", .type = GP_EVENT_MARK, .device = 255};
    object = gp_event_json(&place, &event);
    cr_assert_str_eq(json_string_value(json_object_get(object, "name")), "a?b");
    cr_assert(json_is_null(json_object_get(object, "device")));
    cr_assert(json_is_null(json_object_get(object, "size_bytes")), "a mark has no size");
    json_decref(object);
    event.type = 200;
    event.kind = 99;
    object = gp_event_json(&place, &event);
    cr_assert(object, "a type of a later version must not fail");
    json_decref(object);
}

Test(write, unknown_is_null)
{
    struct gp_device_view device;
    memset(&device, 0, sizeof(device));
    device.total_bytes = device.untracked_bytes = -1;
    device.wire.kinds[GP_KIND_CONTEXT].current_bytes = -1;
    struct gp_process process = {.pid = 1, .state = GP_PROCESS_STALE, .device_count = 1, .devices = &device};
    struct gp_system system = {.process_count = 1, .processes = &process};
    json_t *top = gp_stat_json(&system, -1);
    json_t *d = json_array_get(json_object_get(json_array_get(json_object_get(top, "processes"), 0), "devices"), 0);
    static const char *const nulls[] = {"uuid", "name", "total_bytes", "untracked_bytes"};
    for (size_t i = 0; i < sizeof(nulls) / sizeof(nulls[0]); i++)
        cr_assert(json_is_null(json_object_get(d, nulls[i])), "%s", nulls[i]);
    cr_assert_eq(json_object_size(json_object_get(d, "stats")), GP_STAT_KEYS);
    json_t *kinds = json_object_get(d, "kinds");
    cr_assert(json_is_null(json_object_get(json_object_get(kinds, "context"), "current_bytes")), "never measured");
    cr_assert(json_is_integer(json_object_get(json_object_get(kinds, "linear"), "current_bytes")));
    json_decref(top);
}
