/* SPDX-License-Identifier: MIT
 *
 * file.h: writes a recording: encodes events as columns, frames and checksums blocks, keeps the
 * index. Called by the recorder (in the profiled process and in `gpuprof record`) and by the tests.
 * Never calls malloc.
 *
 * A block that cannot be written is dropped and counted: on a full disk the file stays as it is,
 * sound, and writing goes on when there is space again. Threads: one at a time per file.
 */
#ifndef GP_RECORD_FILE_H
#define GP_RECORD_FILE_H

#include "record/format.h"
#include "record/pack.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ==== columns of events =========================================================================================== */
/* Encodes events as the columns of one block (format.h). Called by file.c. */

/* Hash tables, twice as large as their number of entries. */
#define GP_COLUMNS_SLOTS (2u * GP_FORMAT_EVENTS)
#define GP_COLUMNS_TAGS  1024u
#define GP_COLUMNS_NAMES (2u * GP_FORMAT_TIDS)

struct gp_columns_place { /* an address, and the fields of its last event */
    uint64_t address, bytes, unused;
    uint64_t stream[2]; /* [0]: of the last free; [1]: of the last other event */
    uint32_t site, pad_;
};

struct gp_columns {
    uint32_t count, places;
    uint32_t tags, tids, streams; /* entries of the dictionaries */
    uint64_t first_ns, last_ns;   /* lowest and highest */
    /* The previous event: */
    uint64_t time_ns, base_ns, address, stream;
    uint32_t site, last_site, tid;
    struct gp_pack column[GP_COLUMNS];
    uint32_t slot_of[GP_COLUMNS_SLOTS]; /* index in place + 1 */
    struct gp_columns_place place[GP_FORMAT_EVENTS];
    uint32_t tag_key[GP_COLUMNS_TAGS]; /* key + 1 */
    uint8_t tag_of[GP_COLUMNS_TAGS];
    uint32_t tid_key[GP_COLUMNS_NAMES];
    uint16_t tid_of[GP_COLUMNS_NAMES]; /* index + 1 */
    uint64_t stream_key[GP_COLUMNS_NAMES];
    uint16_t stream_of[GP_COLUMNS_NAMES]; /* index + 1 */
};

/* Bytes that the columns of a full block need at most. */
size_t gp_columns_bytes(void);
/* memory: gp_columns_bytes() long. It and *columns are zeroed by the caller. */
void gp_columns_init(struct gp_columns *columns, uint8_t *memory);
/* False: the block is full; write it, call gp_columns_clear, and add the event again. */
bool gp_columns_add(struct gp_columns *columns, const struct gp_wire_event *event);
/* Appends the payload of the block to *out. */
void gp_columns_payload(const struct gp_columns *columns, struct gp_pack *out);
void gp_columns_clear(struct gp_columns *columns);

/* ==== the file ==================================================================================================== */

struct gp_file;

/* Disk space that a recording allocates when it begins. */
#define GP_FILE_BEGIN_BYTES (320u << 10)

/* Opens `path` for a recording: a new file of mode 0600, or a FIFO of this user that has a reader.
 * empty: also an empty file that no process is writing. What a file holds is never lost. Returns a
 * descriptor, -EEXIST (a file exists), -EBUSY (a recording is being written there), -ELOOP (a
 * symbolic link), or another -errno. */
int gp_file_open(const char *path, bool empty);

/* Removes a file that gp_file_open made and that could not be begun: one that is empty. */
void gp_file_drop(const char *path);

struct gp_file_who {
    uint32_t pid;
    uint8_t session_id[16];
    uint64_t begin_unix_ns, run_unix_ns;
};

/* Writes the head and takes over the descriptor. 0 or -errno; the descriptor is closed on
 * failure. */
int gp_file_new(struct gp_file **out, int fd, const struct gp_file_who *who);

/* Continues the recording of a writer that was killed: removes what follows its last sound block, and
 * takes over the descriptor, which can be read. The file gets no index. 0; -EPROTO: not a recording
 * of this version; -errno. The descriptor is closed on failure. */
int gp_file_resume(struct gp_file **out, int fd);

/* While confined(arg), which may be NULL, no system call but write is made. */
void gp_file_confine(struct gp_file *file, bool (*confined)(void *arg), void *arg);

/* Adds one event to the current block, and writes the block when it is full. type: EVENTS or
 * BASELINE; call gp_file_flush before changing it. */
void gp_file_add(struct gp_file *file, const struct gp_wire_event *event, enum gp_format_type type);
/* Writes the current block, if it has events. */
void gp_file_flush(struct gp_file *file, enum gp_format_type type);

/* The buffer for the next payload; one at a time. */
struct gp_pack *gp_file_pack(struct gp_file *file);
/* Writes the payload in that buffer. last: a block that the file needs to be complete; disk space
 * is kept for it. 0; -errno: the block is not in the file. */
int gp_file_block(struct gp_file *file, enum gp_format_type type, uint32_t count, bool last);

struct gp_file_stats {
    uint64_t bytes;      /* of the file */
    uint64_t events;     /* in the file */
    uint64_t baseline;   /* events of the baseline in the file */
    uint64_t given_up;   /* events that could not be written */
    uint64_t packed_of;  /* bytes of payloads before compression */
    int error;           /* errno of the last write; 0: it succeeded */
    int lost_error;      /* errno of the write that first gave up events; 0: none did */
    uint64_t lost_ns;    /* the lowest time of those events */
    uint64_t lost_after; /* events in the file at that moment */
    bool dead;           /* set when writing has stopped for good */
};
void gp_file_stats(const struct gp_file *file, struct gp_file_stats *out);

/* Writes the index and closes.  0, or -errno of the last write. */
int gp_file_end(struct gp_file *file);

#endif
