/* SPDX-License-Identifier: MIT
 *
 * test_pjrt.c: what XLA says of its own pools, from its table of functions (src/account/framework/pjrt.c) to viewers. The table is a
 * stand-in, which keeps PJRT's rule for arguments and tells whether a client is asked that has ended.
 */
#include "account/door.h"
#include "account/feed/poll.h"
#include "account/framework/internal.h"
#include "account/tap.h"
#include "lib/standin.h"
#include <criterion/criterion.h>
#include <gpuprof/wire.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

struct args {
    size_t struct_size;
    void *extensions, *object;
    int64_t out[32];
};
typedef void *function(struct args *args);
static struct table {
    size_t struct_size;
    void *extensions;
    size_t version_size;
    void *version_extensions;
    int major, minor;
    function *functions[140];
} * table;
enum { ERROR_DESTROY = 0, CLIENT_DESTROY = 11, DEVICES = 16, BUFFER = 22, LOCAL_ID = 31, STATS = 34 };

static int client, devices[3];
static unsigned asked, asked_dead, destroyed, errors;
static bool is_alive, is_slow, refuses, full;
static char error;

static void *error_destroy(struct args *args)
{
    cr_assert_eq(args->object, &error);
    errors++;
    return NULL;
}

static void *client_destroy(struct args *args)
{
    cr_assert_eq(args->object, &client);
    __atomic_store_n(&is_alive, false, __ATOMIC_SEQ_CST);
    destroyed++;
    return NULL;
}

static void *client_devices(struct args *args)
{
    static int *list[3] = {&devices[0], &devices[1], &devices[2]};
    asked_dead += !__atomic_load_n(&is_alive, __ATOMIC_SEQ_CST);
    if (args->struct_size < 40)
        return &error;
    args->out[0] = (int64_t)(intptr_t)list;
    args->out[1] = 3;
    return NULL;
}

static void *buffer(struct args *args)
{
    (void)args;
    return NULL;
}

static void *local_id(struct args *args)
{
    int at = (int)((int *)args->object - devices);
    memcpy(args->out, &(int){at == 2 ? 100000 : at}, sizeof(int)); /* the last one is no device here */
    return NULL;
}

static void *stats(struct args *args)
{
    __atomic_add_fetch(&asked, 1, __ATOMIC_SEQ_CST);
    if (args->struct_size < 200 || args->object == &devices[1] || refuses)
        return &error;
    if (is_slow)
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    asked_dead += !__atomic_load_n(&is_alive, __ATOMIC_SEQ_CST);
    args->out[0] = 10;
    /* (value, whether it is set) from the peak on; limit is the fourth pair, the pool and its peak the last two */
    for (unsigned i = 0; full && i < 10; i++)
        args->out[1 + 2 * i] = 100 + i, args->out[2 + 2 * i] = 1;
    return NULL;
}

static struct table *get(void)
{
    return table;
}

STANDIN(bool, gp_slots_replace, struct gp_slot_import *imports, unsigned count, const struct gp_slot_caller *caller)
{
    (void)caller;
    cr_assert_eq(count, 1);
    cr_assert_str_eq(imports->name, "GetPjrtApi");
    imports->x_original = (void *)get;
    return true;
}

static void setup(void)
{
    table = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *table = (struct table){.struct_size = sizeof(*table), .version_size = 24, .minor = 112};
    for (unsigned i = 0; i < 140; i++)
        table->functions[i] = buffer;
    table->functions[ERROR_DESTROY] = error_destroy;
    table->functions[CLIENT_DESTROY] = client_destroy;
    table->functions[DEVICES] = client_devices;
    table->functions[LOCAL_ID] = local_id;
    table->functions[STATS] = stats;
    is_alive = full = true;
}

TestSuite(pjrt, .init = setup, .timeout = 60);

static void look(void)
{
    gp_pjrt_find(NULL);
    gp_pjrt_look();
}

static void *call(unsigned number, void *object)
{
    struct args args = {.struct_size = sizeof(args), .object = object};
    return table->functions[number](&args);
}

static struct gp_wire_doors doors(void)
{
    static struct gp_wire_doors all;
    gp_feed_poll_doors(true);
    gp_tap_doors(&all);
    return all;
}

static struct gp_wire_polled said(void)
{
    return gp_door_polled(0);
}

Test(pjrt, what_it_says_is_polled)
{
    look();
    struct gp_wire_doors is = doors();
    cr_expect(is.door_count == 1 && is.doors[0].state == GP_WIRE_DOOR_POLLED && is.row_count == 0, "no client yet");
    call(BUFFER, &client);
    is = doors();
    cr_assert_eq(is.row_count, 1, "one device answers, one refuses, and one is not there");
    const struct gp_wire_door_row *row = &is.rows[0];
    cr_expect(row->device == 0 && row->allocated_bytes == 10 && row->allocated_peak_bytes == 100);
    cr_expect(row->limit_bytes == 103 && row->reserved_bytes == 108 && row->reserved_peak_bytes == 109);
    cr_expect(row->time_ns && row->pieces == -1);
    cr_expect_eq(errors, 1);
    full = false;
    is = doors();
    cr_expect(is.rows[0].allocated_bytes == 10 && is.rows[0].allocated_peak_bytes == -1 &&
              is.rows[0].limit_bytes == -1);
    cr_expect(is.rows[0].reserved_bytes == -1 && is.rows[0].reserved_peak_bytes == -1);
    refuses = true;
    cr_expect_eq(doors().row_count, 0, "it is no longer known");
    cr_expect(said().peak_bytes == 100 && said().pool_bytes == 109 && said().limit_bytes == 103, "and the most stays");
}

Test(pjrt, an_ended_client_is_not_asked)
{
    look();
    call(BUFFER, &client);
    cr_expect_eq(said().peak_bytes, 0);
    call(CLIENT_DESTROY, &client);
    cr_expect_eq(said().peak_bytes, 100, "it is asked once more while it is there");
    cr_expect_eq(asked_dead, 0);
    unsigned before = asked;
    cr_expect_eq(doors().row_count, 0);
    cr_expect(asked == before && destroyed == 1);
}

static void *poller(void *arg)
{
    for (unsigned i = 0; i < 20; i++)
        gp_feed_poll_doors(true);
    return arg;
}

Test(pjrt, an_end_waits_for_the_answer)
{
    pthread_t thread;
    look();
    call(BUFFER, &client);
    is_slow = true;
    cr_assert_eq(pthread_create(&thread, NULL, poller, NULL), 0);
    while (!__atomic_load_n(&asked, __ATOMIC_SEQ_CST))
        ;
    call(CLIENT_DESTROY, &client);
    pthread_join(thread, NULL);
    cr_expect(asked_dead == 0 && destroyed == 1);
}

Test(pjrt, another_version_is_not_asked)
{
    table->major = 1;
    function *was = table->functions[BUFFER];
    look();
    cr_expect(doors().doors[0].state == GP_WIRE_DOOR_OFF && table->functions[BUFFER] == was);
    cr_expect_str_eq(doors().doors[0].text, "this version of its interface is not known");
}

Test(pjrt, a_table_that_cannot_be_written)
{
    mprotect(table, 4096, PROT_READ);
    look();
    cr_expect_eq(doors().doors[0].state, GP_WIRE_DOOR_OFF);
    cr_expect_str_eq(doors().doors[0].text, "its table of functions cannot be changed");
}

Test(pjrt, its_functions_come_back)
{
    struct table was = *table;
    look();
    cr_expect_neq(table->functions[BUFFER], was.functions[BUFFER]);
    call(BUFFER, &client);
    gp_pjrt_restore();
    cr_expect_arr_eq(table, &was, sizeof(was));
    cr_expect_eq(doors().row_count, 0);
}
