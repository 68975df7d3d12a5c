/* SPDX-License-Identifier: MIT
 *
 * inject.h: declarations that the files of inject/ share; shimtable.h is for the shim too.
 */
#ifndef GP_INJECT_INJECT_H
#define GP_INJECT_INJECT_H

#include "session/session.h"
#include "source/source.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ==== settings ==================================================================================================== */
/* Settings from the environment, or from gpuprof_attach. */

enum gp_option_source { GP_OPTION_AUTO, GP_OPTION_CUPTI, GP_OPTION_HOOKS };

/* The valid settings; the strings belong to the environment, or to the text of gpuprof_attach. */
struct gp_options {
    enum gp_option_source source;
    enum gp_cupti_form cupti;
    const char *allocator; /* NULL: none requested.  allocator/ parses it and conf */
    const char *conf;
    uint64_t limit_bytes; /* 0: none */
    uint32_t stacks;      /* GP_SITES_*; 0 off */
    bool stacks_set;
    const char *record; /* NULL: none */
    uint64_t record_since_ns;
    bool ring_always;
};

/* Reads every row of option.def, with secure_getenv, or from settings: NAME=VALUE, each with a NUL,
 * and one more at the end.  complaint describes the settings that cannot be used ("": none). */
void gp_options_read(struct gp_options *out, const char *settings, char *complaint, size_t complaint_bytes);

/* Adds one sentence to complaint, and logs it. */
void gp_option_complain(char *complaint, size_t complaint_bytes, const char *sentence);

/* ==== without a GPU =============================================================================================== */
/* Detects that this process cannot have a GPU.  The start runs inside cuInit, before the driver
 * searches for devices, so the result of cuInit is not known yet. */

/* Returns true only if it is certain that there is no GPU: the process has loaded NVIDIA's driver
 * library, and the machine (or the container) shows no sign of its kernel driver.  Makes no CUDA
 * call.  About 50 us. */
bool gp_nogpu_is_certain(void);

/* Call it when cuInit has succeeded: then there is a GPU, even without these signs. */
void gp_nogpu_refute(void);

/* ==== the recording thread ======================================================================================== */
/* Records the process's own events (GPUPROF_RECORD).  A thread of ours copies them from the ring to
 * a file.  The program's threads never wait for it: events that come too fast are overwritten in the
 * ring and counted. The thread has a descriptor table of its own, so the file and the program's
 * descriptors cannot interfere. */

struct gp_ring;

struct gp_record_setup {
    const char *path;              /* record/recorder.h: %p is the pid */
    struct gp_wire_header *header; /* of the mapped session; the recorder writes its record_* fields and `recorded` */
    /* Both run on the recorder's thread, and both may be NULL. */
    void (*publish)(void);      /* refreshes the session's published numbers */
    void (*appeared)(void);     /* a device was used for the first time, so the driver can be asked for its identity */
    const struct gp_ring *ring; /* the session's; NULL: chunks that no event was in are looked at like others */
    uint64_t since_unix_ns;     /* the run that the recording belongs to; 0: none */
};

/* 0; -errno with a sentence in why: then nothing is recorded, and nothing else changes. */
int gp_record_start(const struct gp_record_setup *setup, char *why, size_t why_bytes);

/* Ends the recording: writes the events in the ring for half a second, counts the rest, and closes
 * the file.  Call it once, at the exit or at the detach, which waits for one second at most; after that the
 * header says that the file has no end (ETIMEDOUT) and how many events are missing. */
void gp_record_stop(bool detached);

/* ==== attach and detach =========================================================================================== */
/* The state of the library (state.c). */

extern struct gp_session gp_inject_session;
/* For who attaches; exported. */
extern struct gp_wire_attach_state gpuprof_attach_state;

/* The start is over and was successful. */
void gp_inject_set_ready(void);
bool gp_inject_is_ready(void);
/* Says in gpuprof_attach_state how the attach or the detach went. */
void gp_inject_say(enum gp_wire_attach state, int error, const char *text);

/* Starts every stage (init.c). settings: of gpuprof_attach; NULL: the program is in its first cuInit,
 * and the environment has the settings. */
void gp_inject_start(const char *settings);
/* Takes the start away from InitializeInjection. False: that one is under way. */
bool gp_inject_claim(void);

/* For the drain thread (session.h, leave.c). */
int gp_inject_leave(void);
bool gp_inject_left(void);
/* Returns whether the calling thread is the only one of ours in time. */
bool gp_leave_alone(void);
/* Returns whether every thread of the program is outside of the library in time. */
bool gp_leave_all_out(void);

#endif
