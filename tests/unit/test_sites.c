/* SPDX-License-Identifier: MIT
 *
 * test_sites.c: the call sites of a live session: what is read, what grows, and what a hostile process may write there.
 */
#include <collect/sites.h>
#include <lib/sitesession.h>
#include <symbol/symbol.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct gp_test_session session;
static struct gp_test_sites wire;
static struct gp_peer peer;
static struct gp_sites *sites;
static char problem[GP_PROBLEM_BYTES];

static void setup(void)
{
    cr_assert_eq(gp_test_session_make(&session, 64, false), 0);
    cr_assert_eq(gp_test_sites_make(&session, &wire, GP_SITES_NATIVE), 0);
    cr_assert_eq(gp_peer_load(&peer, dup(session.fd), problem), 0, "%s", problem);
}

static void clean(void)
{
    gp_sites_close(sites);
    gp_peer_close(&peer);
    gp_test_session_free(&session);
}

static int open_sites(void)
{
    return gp_sites_open_peer(&sites, &peer, getpid(), "/proc/self", problem);
}

TestSuite(sites, .init = setup, .fini = clean, .timeout = 60);

Test(sites, an_empty_table_has_the_unknown_site)
{
    wire.head->rows = 0;
    cr_assert_eq(open_sites(), 0, "%s", problem);
    cr_assert_eq(sites->site_count, 1);
    cr_assert_eq(sites->sites[0].frame_count, 0);
}

Test(sites, off_is_not_an_error_of_the_session)
{
    session.header->sites_offset = session.header->sites_bytes = 0;
    cr_assert_eq(open_sites(), -ENOENT);
}

Test(sites, everything_is_read_and_grows)
{
    gp_test_sites_python(&wire, "f", "a.py", 3);
    gp_test_sites_native(&wire, (uint64_t)(uintptr_t)open_sites + 1);
    gp_test_sites_native(&wire, 5);
    uint32_t first = gp_test_sites_end(&wire, 2, GP_KIND_POOL, 100, 200);
    wire.rows[first].truncated = 1;
    wire.head->lost_rows = 1, wire.head->lost_frames = 2, wire.head->lost_strings = 3, wire.head->captures = 4;
    cr_assert_eq(open_sites(), 0, "%s", problem);
    cr_assert_eq(sites->site_count, 2);
    const struct gp_rec_site *row = &sites->sites[1];
    cr_assert(row->device == 2 && row->kind == GP_KIND_POOL && row->truncated && row->frame_count == 3);
    cr_assert(row->live_bytes == 100 && row->peak_bytes == 200 && row->calls == 1 && row->live_count == 1);
    const struct gp_rec_frame *frame = &sites->frames[row->first_frame];
    cr_assert_str_eq(sites->strings + frame[0].function, "f");
    cr_assert_str_eq(sites->strings + frame[0].file, "a.py");
    cr_assert_eq(frame[0].line, 3);
    cr_assert_eq(frame[0].pc, 0);
    cr_assert_lt(frame[1].module, sites->module_count);
    cr_assert(strstr(sites->strings + sites->modules[frame[1].module].path, "test_sites"));
    cr_assert_gt(strlen(sites->strings + sites->modules[frame[1].module].build_id), 8);
    cr_assert_eq(frame[2].module, GP_REC_NONE);
    cr_assert(sites->lost_rows == 1 && sites->lost_frames == 2 && sites->lost_strings == 3 && sites->captures == 4);

    struct gp_symbol_source source = {sites->sites,      sites->frames,      sites->modules,      sites->strings,
                                      sites->site_count, sites->frame_count, sites->module_count, ""};
    struct gp_symbols *symbols;
    const struct gp_frame_text *text;
    cr_assert_eq(gp_symbols_new(&symbols, &source), 0);
    cr_assert_geq(gp_symbols_site(symbols, 1, &text), 3);
    uint32_t modules = sites->module_count;
    for (int i = 0; i < 200; i++) {
        char name[32];
        snprintf(name, sizeof(name), "g%d", i);
        gp_test_sites_python(&wire, name, "b.py", (uint32_t)i);
        gp_test_sites_end(&wire, 0, GP_KIND_LINEAR, i, i);
    }
    wire.rows[1].live_bytes = 77;
    cr_assert_eq(gp_sites_update(sites, problem), 0, "%s", problem);
    cr_assert_eq(sites->site_count, 202);
    cr_assert_eq(sites->module_count, modules, "the same mappings keep their numbers");
    cr_assert_eq(sites->sites[1].live_bytes, 77);
    source = (struct gp_symbol_source){sites->sites,      sites->frames,      sites->modules,      sites->strings,
                                       sites->site_count, sites->frame_count, sites->module_count, ""};
    cr_assert_eq(gp_symbols_update(symbols, &source), 0);
    cr_assert_str_eq(gp_symbols_name(symbols, 201)->function, "g199");
    cr_assert_str_eq(gp_symbols_name(symbols, 201)->file, "b.py");
    cr_assert_str_eq(text[0].function, "open_sites", "texts given out stay");
    gp_symbols_free(symbols);
}

Test(sites, what_a_site_held_at_the_peak)
{
    for (int i = 0; i < 2; i++) {
        gp_test_sites_python(&wire, "f", "a.py", 1);
        gp_test_sites_end(&wire, 1, GP_KIND_LINEAR, 100, 200);
        wire.rows[i + 1].at_peak_bytes = 150;
    }
    wire.head->devices[1].peak_seq = 9;
    wire.rows[1].peak_seq = 9; /* it moved after the peak, and kept what it had */
    wire.rows[2].peak_seq = 8; /* it has not moved since */
    cr_assert_eq(open_sites(), 0, "%s", problem);
    cr_assert_eq(sites->sites[1].at_peak_bytes, 150);
    cr_assert_eq(sites->sites[2].at_peak_bytes, 100);
}

static uint32_t x_stop;
static void *mover(void *unused)
{
    for (int64_t i = 0; !__atomic_load_n(&x_stop, __ATOMIC_RELAXED);
         i++) { /* one after the other, to the same number */
        for (int64_t *at = &wire.rows[1].live_bytes; at <= &wire.rows[1].at_peak_bytes; at++)
            __atomic_store_n(at, i, __ATOMIC_RELEASE);
        if (i % 256 == 0)
            usleep(1);
    }
    return unused;
}

Test(sites, a_row_that_moves_is_read_whole)
{
    pthread_t thread;
    gp_test_sites_python(&wire, "f", "a.py", 1);
    gp_test_sites_end(&wire, 1, GP_KIND_LINEAR, 0, 0);
    wire.rows[1].live_count = wire.rows[1].peak_bytes = wire.rows[1].at_peak_bytes = 0;
    cr_assert_eq(open_sites(), 0, "%s", problem);
    pthread_create(&thread, NULL, mover, NULL);
    uint64_t torn = 0, unsteady = 0;
    for (int i = 0; i < 3000; i++) {
        cr_assert_eq(gp_sites_update(sites, problem), 0, "%s", problem);
        const struct gp_rec_site *row = &sites->sites[1];
        unsteady += sites->unsteady;
        torn += !sites->unsteady && (row->live_bytes < row->live_count || row->live_count < row->peak_bytes ||
                                     row->peak_bytes < row->at_peak_bytes || row->live_bytes > row->at_peak_bytes + 1);
    }
    __atomic_store_n(&x_stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    cr_assert_eq(torn, 0, "%lu torn, %lu said to be unsteady", (unsigned long)torn, (unsigned long)unsteady);
}

/* Each value in its place, one at a time. */
Test(sites, what_makes_no_sense_is_refused)
{
    struct gp_wire_header *h = session.header;
    uint64_t total = h->sites_bytes, offset = h->sites_offset;
    gp_test_sites_python(&wire, "f", "a.py", 1);
    gp_test_sites_native(&wire, 1);
    gp_test_sites_end(&wire, 1, GP_KIND_LINEAR, 1, 1);
    struct gp_wire_sites head = *wire.head;
    struct gp_wire_site row = wire.rows[1];
    struct gp_wire_frame frame = wire.frames[0];
#define BAD(_what)                                                                                                     \
    do {                                                                                                               \
        _what;                                                                                                         \
        cr_assert_eq(open_sites(), -EPROTO, #_what);                                                                   \
        cr_assert(problem[0], #_what);                                                                                 \
        *wire.head = head;                                                                                             \
        wire.rows[1] = row;                                                                                            \
        wire.frames[0] = frame;                                                                                        \
        h->sites_bytes = total;                                                                                        \
        h->sites_offset = offset;                                                                                      \
    } while (0)
    BAD(h->sites_bytes = total + 1);
    BAD(h->sites_bytes = 8);
    BAD(h->sites_offset = UINT64_MAX - 7);
    BAD(h->sites_offset = 0);
    BAD(h->sites_offset = offset + 4);
    BAD(wire.head->row_bytes = 64);
    BAD(wire.head->frame_bytes = 0);
    BAD(wire.head->rows = wire.head->row_limit + 1);
    BAD(wire.head->frames = UINT32_MAX);
    BAD(wire.head->strings = UINT32_MAX);
    BAD(wire.head->row_limit = UINT32_MAX);
    BAD(wire.head->frames_offset = UINT64_MAX);
    BAD(wire.head->frames_offset = UINT64_MAX - 7);
    BAD(wire.head->rows_offset = 0);
    BAD(wire.head->strings_offset = total - 8);
    BAD(wire.rows[1].first_frame = UINT64_MAX);
    BAD(wire.rows[1].first_frame = 1);
    BAD(wire.rows[1].frame_count = 3);
    BAD(wire.rows[1].frame_count = UINT32_MAX);
    BAD(wire.rows[1].device = GP_WIRE_DEVICES);
    BAD(wire.rows[1].kind = GP_KINDS);
    BAD(wire.rows[1].truncated = 2);
    BAD(wire.frames[0].type = 0);
    BAD(wire.frames[0].type = 3);
    BAD(wire.frames[0].function = wire.head->strings);
    BAD(wire.frames[0].file = UINT32_MAX);
#undef BAD
    cr_assert_eq(open_sites(), 0, "%s", problem);
    wire.rows[1].live_bytes = INT64_MIN;
    wire.rows[1].calls = INT64_MAX;
    cr_assert_eq(gp_sites_update(sites, problem), 0);
    cr_assert_eq(sites->sites[1].live_bytes, 0);
    cr_assert_eq(sites->sites[1].calls, 1ll << 60);
    memset(wire.strings, 'x', wire.head->string_limit); /* without an end */
    wire.head->rows = 0;
    cr_assert_eq(gp_sites_update(sites, problem), -EPROTO, "what was there cannot go away");
    cr_assert_eq(sites->site_count, 2, "what was known stays");
}

Test(sites, strings_that_do_not_end_are_ended)
{
    gp_test_sites_python(&wire, "f", "a.py", 1);
    gp_test_sites_end(&wire, 1, GP_KIND_LINEAR, 1, 1);
    memset(wire.strings, 'x', wire.head->string_limit);
    wire.head->strings = wire.head->string_limit;
    cr_assert_eq(open_sites(), 0, "%s", problem);
    cr_assert_lt(strlen(sites->strings + sites->frames[0].function), wire.head->string_limit + 1ul);
}

Test(sites, random_bytes)
{
    uint64_t total = session.header->sites_bytes;
    unsigned good = 0;
    srand(2);
    for (int i = 0; i < 20; i++) {
        gp_test_sites_python(&wire, "f", "a.py", 1);
        gp_test_sites_native(&wire, (uint64_t)(uintptr_t)open_sites);
        gp_test_sites_end(&wire, i, GP_KIND_LINEAR, 1, 1);
    }
    unsigned char *bytes = (void *)wire.head, *before = malloc(total);
    memcpy(before, bytes, total);
    for (int i = 0; i < 3000; i++) {
        for (int k = 0; k < 3; k++) {
            size_t at = k == 0   ? (size_t)rand() % 120
                        : k == 1 ? (size_t)wire.head->rows_offset % total + (size_t)rand() % 2600
                                 : (size_t)rand() % total;
            bytes[at % total] = (unsigned char)rand();
        }
        if (open_sites() == 0) {
            struct gp_symbol_source source = {
                sites->sites,      sites->frames,      sites->modules,      sites->strings,
                sites->site_count, sites->frame_count, sites->module_count, ""};
            struct gp_symbols *symbols;
            cr_assert_eq(gp_symbols_new(&symbols, &source), 0);
            for (uint32_t s = 0; s < sites->site_count && i % 100 == 0; s++)
                gp_symbols_name(symbols, s);
            gp_symbols_free(symbols);
            gp_sites_close(sites);
            sites = NULL;
            good++;
        }
        memcpy(bytes, before, total);
    }
    free(before);
    cr_assert(good > 100 && good < 2990, "%u of 3000 could be read", good);
}
