/* SPDX-License-Identifier: MIT
 * test_export.c: recorded programs as databases: the peak that one asks SQL for is the peak that
 * the simulated GPU's ledger has, to the byte, and what lived at it adds up to it. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/ledger.h"
#include "lib/paths.h"
#include "lib/spawn.h"

/* One thread each: with several the two peaks may differ by calls in flight.  No pools of the
 * driver and no graphs: their memory is polled.  No memory that is mapped twice: an event of a
 * mapping does not name the handle. */
static const char *const programs[] = {"linear",  "linear_rt", "pitched",  "devices_rt",
                                       "primary", "contexts",  "vmm_unmap"};

struct param {
    char name[32];
};

static void record_program(const char *name, const char *folder)
{
    struct spawn_result result;
    char record[128], ledger[128];
    snprintf(record, sizeof(record), "--record=%s/rec", folder);
    snprintf(ledger, sizeof(ledger), "GPUPROF_SIM_LEDGER=%s/ledger", folder);
    const char *argv[] = {path_command(), "run", "--sim=devices=2", record, "--", path_program(name), NULL};
    const char *env[] = {ledger, NULL};
    cr_assert_eq(spawn_run(&(struct spawn_options){.argv = argv, .env = env}, &result), 0);
    cr_assert_eq(result.status, 0, "%s: %s: %s", name, spawn_status_text(&result), result.err);
    spawn_result_free(&result);
}

static sqlite3 *database(const char *name, const char *folder)
{
    struct spawn_result result;
    char record[128], path[128];
    sqlite3 *db;
    snprintf(record, sizeof(record), "%s/rec", folder);
    snprintf(path, sizeof(path), "%s/db", folder);
    cr_assert_eq(spawn_command(&result, "export", record, "--format=sqlite", "-o", path, NULL), 0);
    cr_assert_eq(result.status, 0, "%s: %s", name, result.err);
    cr_expect(strstr(result.err, "written") && !strstr(result.err, "lost"), "%s: %s", name, result.err);
    spawn_result_free(&result);
    cr_assert_eq(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    return db;
}

static int compare_peaks(sqlite3 *db, const json_t *ledger, const char *name)
{
    sqlite3_stmt *ask;
    char path[64];
    int devices = 0;
    cr_assert_eq(
        sqlite3_prepare_v2(db,
                           "SELECT ordinal, peak_bytes, (SELECT sum(bytes) FROM live_at_peak l WHERE l.device ="
                           " d.device) FROM device d WHERE ordinal IS NOT NULL AND peak_bytes > 0",
                           -1, &ask, NULL),
        SQLITE_OK, "%s", sqlite3_errmsg(db));
    for (; sqlite3_step(ask) == SQLITE_ROW; devices++) {
        snprintf(path, sizeof(path), "devices/%d/allocated_bytes/peak", sqlite3_column_int(ask, 0));
        cr_expect_eq(sqlite3_column_int64(ask, 1), json_at(ledger, path, -1), "%s: peak %lld, ledger %lld", name,
                     (long long)sqlite3_column_int64(ask, 1), json_at(ledger, path, -1));
        cr_expect_eq(sqlite3_column_int64(ask, 2), sqlite3_column_int64(ask, 1), "%s: the parts of the peak", name);
    }
    sqlite3_finalize(ask);
    return devices;
}

ParameterizedTestParameters(export, peaks_are_the_ledgers)
{
    static struct param params[sizeof(programs) / sizeof(programs[0])];
    for (size_t i = 0; i < sizeof(params) / sizeof(params[0]); i++)
        snprintf(params[i].name, sizeof(params[i].name), "%s", programs[i]);
    return cr_make_param_array(struct param, params, sizeof(params) / sizeof(params[0]));
}

ParameterizedTest(const struct param *param, export, peaks_are_the_ledgers, .timeout = 60)
{
    char folder[] = "/tmp/gp-export.XXXXXX", command[64], form[64];
    cr_assert(mkdtemp(folder));
    record_program(param->name, folder);
    snprintf(form, sizeof(form), "%s/ledger", folder);
    json_t *ledger = json_load_file(form, 0, NULL);
    cr_assert(ledger, "%s: no ledger", param->name);
    sqlite3 *db = database(param->name, folder);
    cr_expect_gt(compare_peaks(db, ledger, param->name), 0, "%s: no device with a peak", param->name);
    sqlite3_close(db);
    json_decref(ledger);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    cr_expect_eq(system(command), 0);
}
