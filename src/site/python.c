/* SPDX-License-Identifier: MIT
 *
 * python.c: the Python frames of the calling thread.
 *
 * The thread is inside a call from Python to C (or never met Python), so nothing runs in its frames: whoever else looks
 * at them (sys._current_frames, the collector, a tracer) counts references and fills in frame objects, but links,
 * instruction pointers and code objects stay, and each frame holds its code object.  Only the end of the interpreter
 * takes them away, from a daemon thread that does not hold the GIL; there we let the kernel copy, and look afterwards
 * whether the end had come.  docs/sites-python.md has the argument in full.
 */
#include "site/python.h"
#include "base/thread.h"
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Frames that are no Python function's stand between those that are, never many in a row. */
#define GP_PYTHON_SKIPPED 4096u

/* Owners of a frame: thread, generator, frame object, and from here on C itself (3.12 and later). */
enum { GP_OWNER_GENERATOR = 1, GP_OWNER_C = 3 };

/* The thread that started the process is the one that shuts Python down: nobody does so behind its back. */
static bool gp_python_main_thread(void)
{
    long tid = gp_thread.tid ? (long)gp_thread.tid : syscall(SYS_gettid);
    return tid == (long)getpid();
}

/* The block at `from`; NULL: not there. */
static const char *gp_python_copy_block(struct gp_python_copies *copies, uint64_t from)
{
    for (unsigned i = 0; i < GP_PYTHON_BLOCKS; i++) {
        if (copies->from[i] == from)
            return copies->bytes[i];
    }
    unsigned at = copies->turn++ % GP_PYTHON_BLOCKS;
    int saved = errno;
    struct iovec here = {.iov_base = copies->bytes[at], .iov_len = GP_PYTHON_BLOCK};
    struct iovec there = {.iov_base = (void *)(uintptr_t)from, .iov_len = GP_PYTHON_BLOCK};
    bool is_read = process_vm_readv(copies->pid, &here, 1, &there, 1, 0) == GP_PYTHON_BLOCK;
    if (!is_read && (errno == EPERM || errno == ENOSYS))
        gp_python_note_set(
            "Python frames of threads that do not hold the GIL are missing: this process may not use process_vm_readv");
    errno = saved;
    copies->from[at] = is_read ? from : 0;
    return is_read ? copies->bytes[at] : NULL;
}

GP_COLD bool gp_python_copy(struct gp_python_copies *copies, uint64_t from, void *to, size_t bytes)
{
    char *out = to;
    while (bytes) {
        uint64_t start = from & ~(uint64_t)(GP_PYTHON_BLOCK - 1), skip = from - start;
        size_t part = GP_PYTHON_BLOCK - skip < bytes ? GP_PYTHON_BLOCK - skip : bytes;
        const char *block = gp_python_copy_block(copies, start);
        if (!block)
            return false;
        memcpy(out, block + skip, part);
        out += part, from += part, bytes -= part;
    }
    return true;
}

/* The innermost frame of a thread state; 0: none. */
static uint64_t gp_python_innermost(const struct gp_python_way *way, uint64_t state)
{
    const struct gp_python_layout *at = &way->python->at;
    uint64_t room;
    const void *word = gp_python_at(way, state + at->state_frame, &room, sizeof room);
    if (word && at->cframe_frame != GP_PYTHON_NONE)
        word = gp_python_at(way, gp_python_word(word, 0) + at->cframe_frame, &room, sizeof room);
    return word ? gp_python_word(word, 0) : 0;
}

enum gp_python_step { GP_STEP_END, GP_STEP_SKIP, GP_STEP_FRAME };

/* Is it a frame of a Python function?  Fills in the code's address and, for whoever wants the line, the offset of the
 * current instruction; *code_head: the code object's fixed part. */
static enum gp_python_step gp_python_step(const struct gp_python_way *way, const char *frame, uint64_t *code,
                                          const char **code_head, char *room, int64_t *offset)
{
    const struct gp_python_layout *at = &way->python->at;
    unsigned owner = at->frame_owner == GP_PYTHON_NONE ? 0 : (unsigned char)frame[at->frame_owner];
    if (owner >= GP_OWNER_C)
        return GP_STEP_SKIP;
    /* From 3.14 on a reference says in its low bits whether it is counted. */
    *code = gp_python_word(frame, at->frame_code) & ~7ull;
    uint32_t bytes = at->code_bytes == GP_PYTHON_NONE ? at->code_table + 8u : at->code_bytes;
    *code_head = gp_python_at(way, *code, room, bytes);
    if (!*code_head || gp_python_word(*code_head, at->object_type) != way->python->code_type)
        return GP_STEP_END;
    if (at->code_bytes == GP_PYTHON_NONE) {
        *offset = 2 * (int64_t)(int32_t)gp_python_half(frame, at->frame_instr);
        return GP_STEP_FRAME;
    }
    *offset = (int64_t)(gp_python_word(frame, at->frame_instr) - *code - at->code_bytes);
    /* A function whose arguments are still being put in place is not running yet. */
    if (owner != GP_OWNER_GENERATOR && *offset < 2 * (int64_t)(int32_t)gp_python_half(*code_head, at->code_traceable))
        return GP_STEP_SKIP;
    return GP_STEP_FRAME;
}

static bool gp_python_frame(const struct gp_python_way *way, uint64_t code, const char *head, int64_t offset,
                            struct gp_python_frame *out)
{
    const struct gp_python_layout *at = &way->python->at;
    out->code = code;
    if (!gp_python_string(way, gp_python_word(head, at->code_name), &out->function) ||
        !gp_python_string(way, gp_python_word(head, at->code_file), &out->file))
        return false;
    uint32_t version = at->code_version == GP_PYTHON_NONE || !way->alone ? 0 : gp_python_half(head, at->code_version);
    if (version && gp_python_line_kept(code, version, offset, &out->line))
        return true;
    out->line = gp_python_line(way, gp_python_word(head, at->code_table), gp_python_half(head, at->code_line), offset);
    if (version && !way->copies)
        gp_python_line_keep(code, version, offset, out->line);
    return true;
}

static unsigned gp_python_walk(const struct gp_python_way *way, uint64_t state, struct gp_python_frame *frames,
                               unsigned room, bool *more)
{
    const struct gp_python_layout *at = &way->python->at;
    char frame_room[GP_PYTHON_FRAME], code_room[GP_PYTHON_CODE];
    /* No more than is used: behind a frame there may be nothing. */
    uint32_t frame_bytes = at->frame_owner == GP_PYTHON_NONE ? at->frame_instr + 4u : at->frame_owner + 1u;
    unsigned count = 0, skipped = 0;
    for (uint64_t next = gp_python_innermost(way, state); next && skipped < GP_PYTHON_SKIPPED;) {
        const char *frame = next & 7 ? NULL : gp_python_at(way, next, frame_room, frame_bytes), *head = NULL;
        uint64_t code = 0;
        int64_t offset = 0;
        enum gp_python_step step = frame ? gp_python_step(way, frame, &code, &head, code_room, &offset) : GP_STEP_END;
        if (step == GP_STEP_END)
            break;
        next = gp_python_word(frame, at->frame_previous);
        if (step == GP_STEP_SKIP) {
            skipped++;
            continue;
        }
        if (count == room) {
            *more = true;
            break;
        }
        if (!gp_python_frame(way, code, head, offset, &frames[count]))
            break;
        count++;
    }
    return count;
}

/* A thread that another one could take the interpreter away from meanwhile. */
static GP_COLD unsigned gp_python_walk_copied(const struct gp_python_way *here, uint64_t state,
                                              struct gp_python_frame *frames, unsigned room, bool *more)
{
    if (here->python->finalizing())
        return 0;
    struct gp_python_copies copies;
    copies.pid = getpid();
    copies.turn = 0;
    memset(copies.from, 0, sizeof copies.from);
    struct gp_python_way way = *here;
    way.copies = &copies;
    unsigned count = gp_python_walk(&way, state, frames, room, more);
    /* What was copied after the end had begun may be anything. */
    if (!here->python->finalizing())
        return count;
    *more = false;
    return 0;
}

unsigned gp_stack_python(struct gp_python_frame *frames, unsigned room, bool *more)
{
    *more = false;
    const struct gp_python *python = gp_python_find();
    void *state = python ? python->state() : NULL;
    if (!state)
        return 0;
    struct gp_python_way way = {.python = python, .alone = python->newest() == python->first()};
    if (python->holder() != state) {
        /* Until 3.11 the state that we were given is the thread's first one, in whichever interpreter. */
        if (python->version < GP_PYTHON_312 && !way.alone) {
            gp_python_note_set(
                "Python 3.10 and 3.11 with sub-interpreters: frames are read of threads that hold the GIL only");
            return 0;
        }
        if (!gp_python_main_thread())
            return gp_python_walk_copied(&way, (uint64_t)(uintptr_t)state, frames, room, more);
    }
    return gp_python_walk(&way, (uint64_t)(uintptr_t)state, frames, room, more);
}
