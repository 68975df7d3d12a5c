/* SPDX-License-Identifier: MIT
 * sqlite.c: writes a recording as a database: tables, indexes, and views of the blocks that were
 * live at the end and at the peak of each device (docs/export.md).  Called through the table in
 * formats.c.
 *
 * It is one transaction without a journal: the file is new, and the command gives it its name only
 * when it is complete. */
#include <convert/export/formats.h>
#include <convert/export/out.h>
#include <gpuprof/wire.h>
#include <read/recording/recording.h>
#include <show/text/stats.h>
#include <symbol/symbol.h>

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char sqlite_tables[] =
    "PRAGMA page_size = 8192; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;"
    "PRAGMA application_id = 0x67707266; PRAGMA user_version = 1; PRAGMA encoding = 'UTF-8';"
    "BEGIN;"
    "CREATE TABLE process(pid INTEGER, comm TEXT, command_line TEXT, host TEXT, source TEXT, allocator TEXT,"
    " driver_version INTEGER, begin_ns INTEGER, end_ns INTEGER, begin_unix_ns INTEGER, complete INTEGER,"
    " from_start INTEGER, tried INTEGER, delivered INTEGER, dropped INTEGER, damaged_blocks INTEGER);"
    "CREATE TABLE lost(cause TEXT PRIMARY KEY, count INTEGER) WITHOUT ROWID;"
    "CREATE TABLE device(device INTEGER PRIMARY KEY, ordinal INTEGER, uuid TEXT, name TEXT, total_bytes INTEGER,"
    " peak_event INTEGER, peak_time_ns INTEGER, peak_bytes INTEGER);"
    "CREATE TABLE thread(thread INTEGER PRIMARY KEY, tid INTEGER, name TEXT);"
    "CREATE TABLE site(site INTEGER PRIMARY KEY, label TEXT, device INTEGER, kind TEXT, truncated INTEGER,"
    " live_bytes INTEGER, live_count INTEGER, peak_bytes INTEGER, at_peak_bytes INTEGER, allocated_bytes INTEGER,"
    " calls INTEGER);"
    "CREATE TABLE frame(site INTEGER, depth INTEGER, function TEXT, file TEXT, line INTEGER, module TEXT,"
    " python INTEGER, inlined INTEGER, PRIMARY KEY(site, depth)) WITHOUT ROWID;"
    "CREATE TABLE event(event INTEGER PRIMARY KEY, time_ns INTEGER, type TEXT, kind TEXT, device INTEGER,"
    " address INTEGER, bytes INTEGER, requested_bytes INTEGER, stream INTEGER, thread INTEGER, site INTEGER,"
    " peer INTEGER, counted INTEGER);"
    "CREATE TABLE mark(event INTEGER PRIMARY KEY, time_ns INTEGER, thread INTEGER, name TEXT);"
    "CREATE TABLE sample(time_ns INTEGER, device INTEGER, allocated_bytes INTEGER, reserved_bytes INTEGER,"
    " active_bytes INTEGER, inactive_split_bytes INTEGER, used_bytes INTEGER, process_bytes INTEGER);";

/* Created after the rows: building an index from all rows at once is the fastest way. */
static const char sqlite_indexes[] =
    "CREATE INDEX event_time ON event(time_ns);"
    "CREATE INDEX event_site ON event(site) WHERE site <> 0;"
    "CREATE INDEX event_address ON event(address) WHERE address IS NOT NULL;"
    "CREATE INDEX event_left ON event(device, kind) WHERE type = 'alloc' AND peer IS NULL;"
    "CREATE INDEX sample_time ON sample(device, time_ns);"
    "CREATE VIEW live_at_end AS SELECT e.*, s.label, printf('0x%x', e.address) AS address_hex"
    " FROM event e LEFT JOIN site s USING(site) WHERE e.counted AND e.peer IS NULL;"
    "CREATE VIEW live_at_peak AS SELECT e.*, s.label, printf('0x%x', e.address) AS address_hex"
    " FROM device d JOIN event e ON e.device = d.device LEFT JOIN site s ON s.site = e.site"
    " WHERE e.counted AND e.event <= d.peak_event AND (e.peer IS NULL OR e.peer > d.peak_event);"
    "COMMIT;";

struct gp_sqlite {
    struct gp_export *export;
    struct gp_export_rows rows;
    sqlite3 *db;
    sqlite3_stmt *insert;
    int column, rc;
};

/* ---- one row ----------------------------------------------------------------------------------------------------- */

static int sqlite_failed(struct gp_sqlite *s)
{
    snprintf(s->export->why, sizeof(s->export->why), "SQLite: %s", s->db ? sqlite3_errmsg(s->db) : "out of memory");
    return s->rc = -EPROTO;
}

static void sqlite_run(struct gp_sqlite *s, const char *sql)
{
    if (!s->rc && sqlite3_exec(s->db, sql, NULL, NULL, NULL) != SQLITE_OK)
        sqlite_failed(s);
}

static void sqlite_prepare(struct gp_sqlite *s, const char *sql)
{
    sqlite3_finalize(s->insert);
    s->insert = NULL;
    s->column = 0;
    if (!s->rc && sqlite3_prepare_v2(s->db, sql, -1, &s->insert, NULL) != SQLITE_OK)
        sqlite_failed(s);
}

static void sqlite_i64(struct gp_sqlite *s, bool known, int64_t number)
{
    s->column++;
    if (!s->rc)
        known ? sqlite3_bind_int64(s->insert, s->column, number) : sqlite3_bind_null(s->insert, s->column);
}

/* For words of our own: they are static, so SQLite need not copy them. */
static void sqlite_word(struct gp_sqlite *s, const char *word)
{
    s->column++;
    if (!s->rc)
        word ? sqlite3_bind_text(s->insert, s->column, word, -1, SQLITE_STATIC)
             : sqlite3_bind_null(s->insert, s->column);
}

/* For strings of the program: SQLite stores any bytes, and readers in other languages fail on
 * invalid UTF-8. */
static void sqlite_text(struct gp_sqlite *s, const char *text)
{
    size_t room = strlen(text) * 3 + 1; /* a bad byte becomes three */
    char *clean = s->rc ? NULL : malloc(room);
    s->column++;
    if (s->rc)
        return;
    if (!clean) {
        s->rc = -ENOMEM;
        return;
    }
    gp_utf8_copy(clean, room, text);
    sqlite3_bind_text(s->insert, s->column, clean, -1, free);
}

static void sqlite_row(struct gp_sqlite *s)
{
    s->column = 0;
    if (s->rc)
        return;
    if (sqlite3_step(s->insert) != SQLITE_DONE)
        sqlite_failed(s);
    sqlite3_reset(s->insert);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static void sqlite_process(struct gp_sqlite *s)
{
    const struct gp_recording *r = s->export->recording;
    sqlite_prepare(s, "INSERT INTO process VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
    sqlite_i64(s, true, r->pid);
    sqlite_text(s, r->comm);
    sqlite_text(s, r->command_line);
    sqlite_text(s, r->host);
    sqlite_word(s, gp_source_name(r->source));
    sqlite_text(s, r->allocator);
    sqlite_i64(s, r->driver_version, r->driver_version);
    sqlite_i64(s, true, (int64_t)r->begin_ns);
    sqlite_i64(s, true, (int64_t)r->end_ns);
    sqlite_i64(s, true, (int64_t)r->begin_unix_ns);
    sqlite_i64(s, true, r->complete);
    sqlite_i64(s, true, r->from_start);
    sqlite_i64(s, true, (int64_t)r->tried);
    sqlite_i64(s, true, (int64_t)r->delivered);
    sqlite_i64(s, true, (int64_t)r->dropped);
    sqlite_i64(s, true, (int64_t)r->damaged_blocks);
    sqlite_row(s);
    sqlite_prepare(s, "INSERT INTO lost VALUES(?,?)");
    for (unsigned cause = 0; cause < GP_LOSTS; cause++) {
        if (!gp_lost_name(cause))
            continue;
        sqlite_word(s, gp_lost_name(cause));
        sqlite_i64(s, true, (int64_t)r->lost[cause]);
        sqlite_row(s);
    }
}

static void sqlite_devices(struct gp_sqlite *s)
{
    const struct gp_recording *r = s->export->recording;
    struct gp_export_peak *peaks = calloc(r->device_count + 1, sizeof(peaks[0]));
    if (!s->rc)
        s->rc = peaks ? gp_export_peaks(s->rows.flow, peaks) : -ENOMEM;
    sqlite_prepare(s, "INSERT INTO device VALUES(?,?,?,?,?,?,?,?)");
    for (uint32_t i = 0; i < r->device_count && !s->rc; i++) {
        const struct gp_rec_device *device = &r->devices[i];
        sqlite_i64(s, true, i);
        sqlite_i64(s, device->index != GP_WIRE_HOST, device->ordinal);
        sqlite_text(s, device->uuid);
        sqlite_text(s, device->index == GP_WIRE_HOST ? "host" : device->name);
        sqlite_i64(s, device->total_bytes >= 0, device->total_bytes);
        sqlite_i64(s, peaks[i].change, peaks[i].event);
        sqlite_i64(s, peaks[i].change, (int64_t)peaks[i].time_ns);
        sqlite_i64(s, true, peaks[i].bytes);
        sqlite_row(s);
    }
    free(peaks);
}

static void sqlite_threads(struct gp_sqlite *s)
{
    const struct gp_recording *r = s->export->recording;
    sqlite_prepare(s, "INSERT INTO thread VALUES(?,?,?)");
    for (uint32_t i = 0; i < r->thread_count && !s->rc; i++) {
        sqlite_i64(s, true, i);
        sqlite_i64(s, r->threads[i].tid, r->threads[i].tid);
        sqlite_text(s, r->strings + r->threads[i].name);
        sqlite_row(s);
    }
}

static void sqlite_site(struct gp_sqlite *s, uint32_t index)
{
    const struct gp_recording *r = s->export->recording;
    const struct gp_rec_site *site = &r->sites[index];
    uint32_t device = 0;
    while (device < r->device_count && r->devices[device].index != site->device)
        device++;
    sqlite_i64(s, true, index);
    sqlite_text(s, index ? gp_export_rows_label(&s->rows, index) : "[unknown]");
    sqlite_i64(s, index && device < r->device_count, device);
    sqlite_word(s, index && site->kind != GP_KIND_NONE ? gp_kind_name(site->kind) : NULL);
    sqlite_i64(s, true, site->truncated);
    const int64_t numbers[] = {site->live_bytes,    site->live_count,      site->peak_bytes,
                               site->at_peak_bytes, site->allocated_bytes, site->calls};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        sqlite_i64(s, index, numbers[i]);
    sqlite_row(s);
}

static void sqlite_frames(struct gp_sqlite *s, uint32_t site)
{
    const struct gp_frame_text *frames;
    uint32_t count = gp_symbols_site(s->export->symbols, site, &frames);
    for (uint32_t i = 0; i < count && !s->rc; i++) {
        sqlite_i64(s, true, site);
        sqlite_i64(s, true, i);
        sqlite_text(s, frames[i].function);
        sqlite_text(s, frames[i].file);
        sqlite_i64(s, frames[i].line, frames[i].line);
        sqlite_text(s, frames[i].module);
        sqlite_i64(s, true, frames[i].python);
        sqlite_i64(s, true, frames[i].inlined);
        sqlite_row(s);
    }
}

static void sqlite_sites(struct gp_sqlite *s)
{
    const struct gp_recording *r = s->export->recording;
    sqlite_prepare(s, "INSERT INTO site VALUES(?,?,?,?,?,?,?,?,?,?,?)");
    for (uint32_t i = 0; i < r->site_count && !s->rc; i++)
        sqlite_site(s, i);
    sqlite_prepare(s, "INSERT INTO frame VALUES(?,?,?,?,?,?,?,?)");
    for (uint32_t i = 1; i < r->site_count && !s->rc; i++)
        sqlite_frames(s, i);
}

static void sqlite_event(struct gp_sqlite *s, const struct gp_export_row *row)
{
    const struct gp_recording *r = s->export->recording;
    const struct gp_rec_event *event = row->event;
    bool stream = event->stream < r->stream_count && !row->name;
    sqlite_i64(s, true, row->number);
    sqlite_i64(s, true, (int64_t)event->time_ns);
    sqlite_word(s, row->type);
    sqlite_word(s, row->kind);
    sqlite_i64(s, event->device < r->device_count, event->device);
    sqlite_i64(s, row->has_address, (int64_t)event->address);
    sqlite_i64(s, row->has_bytes, (int64_t)event->bytes);
    sqlite_i64(s, row->has_bytes, (int64_t)gp_rec_requested(event));
    sqlite_i64(s, stream, stream ? (int64_t)r->streams[event->stream] : 0);
    sqlite_i64(s, true, event->thread);
    sqlite_i64(s, true, event->site);
    sqlite_i64(s, row->has_peer, row->peer);
    sqlite_i64(s, true, row->is_counted);
    sqlite_row(s);
}

static void sqlite_events(struct gp_sqlite *s)
{
    struct gp_export_row row;
    sqlite_prepare(s, "INSERT INTO event VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)");
    while (!s->rc && gp_export_rows_next(&s->rows, &row))
        sqlite_event(s, &row);
}

static void sqlite_marks(struct gp_sqlite *s)
{
    const struct gp_recording *r = s->export->recording;
    sqlite_prepare(s, "INSERT INTO mark VALUES(?,?,?,?)");
    for (size_t i = 0; i < r->event_count && !s->rc; i++) {
        if (r->events[i].type != GP_EVENT_MARK)
            continue;
        sqlite_i64(s, true, (int64_t)i);
        sqlite_i64(s, true, (int64_t)r->events[i].time_ns);
        sqlite_i64(s, true, r->events[i].thread);
        sqlite_text(s, r->strings + r->events[i].bytes);
        sqlite_row(s);
    }
}

static void sqlite_samples(struct gp_sqlite *s)
{
    const struct gp_recording *r = s->export->recording;
    sqlite_prepare(s, "INSERT INTO sample VALUES(?,?,?,?,?,?,?,?)");
    for (size_t i = 0; i < r->sample_count && !s->rc; i++) {
        const struct gp_rec_sample *sample = &r->samples[i];
        const int64_t numbers[] = {sample->allocated_bytes,      sample->reserved_bytes, sample->active_bytes,
                                   sample->inactive_split_bytes, sample->used_bytes,     sample->process_bytes};
        sqlite_i64(s, true, (int64_t)sample->time_ns);
        sqlite_i64(s, true, sample->device);
        for (size_t n = 0; n < sizeof(numbers) / sizeof(numbers[0]); n++)
            sqlite_i64(s, numbers[n] >= 0, numbers[n]);
        sqlite_row(s);
    }
}

int gp_export_sqlite(struct gp_export *export, const char *path)
{
    struct gp_sqlite s = {.export = export};
    s.rc = gp_export_rows_begin(&s.rows, export);
    if (!s.rc && sqlite3_open_v2(path, &s.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) != SQLITE_OK)
        sqlite_failed(&s);
    sqlite_run(&s, sqlite_tables);
    if (!s.rc) {
        sqlite_process(&s);
        sqlite_devices(&s);
        sqlite_threads(&s);
        sqlite_sites(&s);
        sqlite_events(&s);
        sqlite_marks(&s);
        sqlite_samples(&s);
        sqlite_run(&s, sqlite_indexes);
    }
    sqlite3_finalize(s.insert);
    if (s.db && sqlite3_close(s.db) != SQLITE_OK)
        sqlite_failed(&s);
    gp_export_rows_end(&s.rows);
    return s.rc;
}
