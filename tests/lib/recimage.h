/* SPDX-License-Identifier: MIT
 *
 * recimage.h: a session in this process's memory, and a folder like /proc/PID, for tests of the recorder
 * (core/record/recorder.c). Each copy of the session can be made to fail. One at a time.
 */
#ifndef GP_TEST_LIB_RECIMAGE_H
#define GP_TEST_LIB_RECIMAGE_H

#include <gpuprof/wire.h>
#include <record/recorder.h>

#define RECIMAGE_CHUNKS  512u
#define RECIMAGE_ROWS    2500u
#define RECIMAGE_FRAMES  2500u
#define RECIMAGE_STRINGS (200u << 10)

struct recimage {
    struct gp_wire_header header;
    struct gp_wire_device devices[GP_WIRE_DEVICES];
    struct gp_wire_oom oom;
    struct gp_wire_before before;
    struct recimage_sites {
        struct gp_wire_sites head;
        struct gp_wire_site rows[RECIMAGE_ROWS];
        struct gp_wire_frame frames[RECIMAGE_FRAMES];
        char strings[RECIMAGE_STRINGS];
    } sites;
    struct gp_wire_chunk ring[RECIMAGE_CHUNKS];
};
extern struct recimage recimage;

/* The number of the copy that fails (1: the next one, 0: none) and its error; and how many were made. */
extern unsigned recimage_fail, recimage_copies;
/* If set: called after each copy. */
extern void (*recimage_copied)(uint64_t offset);

/* Empties the image, and gives it a sound header: pid 77, session 00 01 .. 0f, a start at 5 s, one row of sites without a
 * name. header.chunk_count may be lowered before the first event. */
void recimage_new(void);
/* Where files are made: in memory, if that can be had, because hundreds are made and removed. */
const char *recimage_folder(void);
/* A setup for gp_recorder_new whose `proc` is a new empty folder. */
struct gp_recorder_setup recimage_setup(void);
/* Writes a file of that folder; "task/7/comm" makes its folders. */
void recimage_proc(const char *name, const void *bytes, size_t count);
void recimage_end(void); /* removes the folder */

void recimage_device(unsigned index, int64_t bytes);
/* Appends an ALLOC of 512 bytes to the ring. */
void recimage_event(uint64_t time_ns, uint32_t tid, uint32_t site, uint8_t device);
uint32_t recimage_string(const char *text);
uint32_t recimage_python(const char *function, const char *file, uint32_t line);
uint32_t recimage_native(uint64_t pc);
uint32_t recimage_site(uint32_t first_frame, uint32_t frames);

#endif
