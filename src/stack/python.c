/* SPDX-License-Identifier: MIT
 *
 * python.c: the Python frames of the calling thread.
 *
 * The thread is inside a call from Python to C (or never ran Python), so nothing runs in its
 * frames. Other code that inspects them (sys._current_frames, the collector, a tracer) changes
 * reference counts and fills in frame objects, but links, instruction pointers and code objects
 * stay, and each frame holds a reference to its code object. Only interpreter shutdown removes
 * frames, from a daemon thread that does not hold the GIL; there the kernel copies them.
 * docs/understand/sites.md has the argument in full.
 */
#include "stack/python.h"
#include "base/thread.h"
#include "stack/internal.h"
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Frames that do not belong to a Python function stand between the others, never many in a row. */
#define GP_PYTHON_SKIPPED 4096u

/* Owners of a frame: thread, generator, frame object, and from 3 on C itself (3.12 and later). */
enum { GP_OWNER_GENERATOR = 1, GP_OWNER_C = 3 };

static uint32_t x_pid;   /* getpid(), cached: libgpuprof is off in a fork's child, which never calls this */
static uint32_t x_ended; /* set once Python was seen shutting down */

/* Whether this is the thread that started the process. Shutdown runs on that thread, so no other
 * thread can shut Python down while it is in here. */
static bool python_main_thread(void)
{
    if (GP_UNLIKELY(!gp_thread.tid))
        return syscall(SYS_gettid) == getpid();
    uint32_t pid = __atomic_load_n(&x_pid, __ATOMIC_RELAXED);
    if (GP_UNLIKELY(!pid))
        __atomic_store_n(&x_pid, pid = (uint32_t)getpid(), __ATOMIC_RELAXED);
    return gp_thread.tid == pid;
}

/* ---- frames that may go away ------------------------------------------------------------------------------------- */

/* Consecutive stacks of a thread need mostly the same memory, so the ranges of the last one are
 * hints. */
#define GP_PYTHON_HINTS      3u
#define GP_PYTHON_HINT_GAP   1024u /* nearer ranges are merged: 1 KiB more costs 30 ns, one more range 400 ns */
#define GP_PYTHON_HINT_BYTES (GP_PYTHON_COPIED - 512u) /* of all hints; the thread state needs the rest */

struct gp_python_hint {
    unsigned count;
    uint32_t bytes;
    struct gp_python_range range[GP_PYTHON_HINTS];
};

/* Hints are kept by thread number and not in thread-local storage, which is scarce. Threads beyond
 * this many share places. A thread that finds its place busy, or another thread's hint in it, goes
 * without: a wrong or missing hint costs one more copy. */
#define GP_PYTHON_PLACES 256u

static struct gp_python_place {
    uint32_t x_busy;
    uint32_t owner; /* gp_thread.number */
    struct gp_python_hint hint;
} gp_python_places[GP_PYTHON_PLACES] GP_ALIGNED_LINE;

static struct gp_python_place *python_place_take(void)
{
    struct gp_python_place *place = &gp_python_places[gp_thread.number % GP_PYTHON_PLACES];
    /* [place.A] acquire: the hint; pairs with [place.R]. */
    return __atomic_exchange_n(&place->x_busy, 1, __ATOMIC_ACQUIRE) ? NULL : place;
}

static void python_place_give(struct gp_python_place *place)
{
    __atomic_store_n(&place->x_busy, 0, __ATOMIC_RELEASE); /* [place.R] pairs with [place.A] */
}

static void python_hint_load(struct gp_python_hint *hint)
{
    struct gp_python_place *place = python_place_take();
    hint->count = 0;
    if (!place)
        return;
    if (place->owner == gp_thread.number)
        *hint = place->hint;
    python_place_give(place);
}

static void python_hint_store(const struct gp_python_hint *hint)
{
    struct gp_python_place *place = python_place_take();
    if (!place)
        return;
    place->owner = gp_thread.number;
    place->hint = *hint;
    python_place_give(place);
}

/* How frames are read that may be freed meanwhile. Frames on the thread's own C stack cannot be. */
struct gp_python_frames {
    struct gp_python_copies copies;
    uint64_t stack_low, stack_high;
    struct gp_python_hint next;
};

static void python_hint_add(struct gp_python_hint *hint, uint64_t from, uint32_t bytes)
{
    for (unsigned i = 0; i < hint->count; i++) {
        struct gp_python_range *range = &hint->range[i];
        uint64_t low = from < range->from ? from : range->from, end = range->from + range->bytes,
                 high = from + bytes > end ? from + bytes : end, more = high - low - range->bytes;
        if (more > GP_PYTHON_HINT_GAP + bytes)
            continue;
        if (hint->bytes + more <= GP_PYTHON_HINT_BYTES) {
            *range = (struct gp_python_range){.from = low, .bytes = (uint32_t)(high - low)};
            hint->bytes += (uint32_t)more;
        }
        return;
    }
    if (hint->count == GP_PYTHON_HINTS || hint->bytes + bytes > GP_PYTHON_HINT_BYTES)
        return;
    hint->range[hint->count++] = (struct gp_python_range){.from = from, .bytes = bytes};
    hint->bytes += bytes;
}

/* Callers' frames lie below: the copy starts at the beginning of the page. */
static bool python_frame_copy(struct gp_python_frames *frames, uint64_t from, void *room, uint32_t bytes)
{
    const char *found = gp_python_copied(&frames->copies, from, bytes);
    if (!found) {
        uint64_t page = from & ~4095ull;
        struct gp_python_range want = {.from = page, .bytes = (uint32_t)(from - page) + bytes};
        if (gp_python_fetch(&frames->copies, &want, 1) != 1)
            return false;
        found = gp_python_copied(&frames->copies, from, bytes);
    }
    memcpy(room, found, bytes);
    python_hint_add(&frames->next, from, bytes);
    return true;
}

static const char *python_frame_at(const struct gp_python_way *way, uint64_t from, void *room, uint32_t bytes)
{
    if (from & 7 || !gp_python_sane(from))
        return NULL;
    struct gp_python_frames *frames = way->frames;
    if (!frames || (from >= frames->stack_low && from + bytes <= frames->stack_high))
        return (const char *)(uintptr_t)from;
    return python_frame_copy(frames, from, room, bytes) ? room : NULL;
}

/* Fetches the thread state's word and the ranges that the last stack needed. Most stacks need no
 * other system call. */
static bool python_frames_start(struct gp_python_frames *frames, uint64_t state_word, int (*finalizing)(void))
{
    struct gp_python_range want[1 + GP_PYTHON_HINTS] = {{.from = state_word, .bytes = 8}};
    /* process_vm_readv accepts a thread's number in place of the process's. */
    gp_python_copies_start(&frames->copies, gp_thread.tid ? (int)gp_thread.tid : getpid(), finalizing);
    uint64_t sp = (uint64_t)(uintptr_t)__builtin_frame_address(0);
    frames->stack_low = frames->stack_high = 0;
    if ((sp >= gp_own_stack_bounds.low && sp < gp_own_stack_bounds.high) || gp_own_stack_widen(sp)) {
        frames->stack_low = sp;
        frames->stack_high = gp_own_stack_bounds.high;
    }
    frames->next.count = frames->next.bytes = 0;
    struct gp_python_hint last;
    python_hint_load(&last);
    memcpy(want + 1, last.range, last.count * sizeof last.range[0]);
    return gp_python_fetch(&frames->copies, want, 1 + last.count) > 0;
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

/* The innermost frame of a thread state; 0: none. */
static uint64_t python_innermost(const struct gp_python_way *way, struct gp_python_copies *copies, uint64_t state)
{
    const struct gp_python_layout *at = &way->python->at;
    uint64_t room;
    const void *word = gp_python_at(copies, state + at->state_frame, &room, sizeof room);
    if (word && at->cframe_frame != GP_PYTHON_NONE)
        word = python_frame_at(way, gp_python_word(word, 0) + at->cframe_frame, &room, sizeof room);
    return word ? gp_python_word(word, 0) : 0;
}

enum gp_python_step { GP_STEP_END, GP_STEP_SKIP, GP_STEP_FRAME };

/* Decides whether this is a frame of a Python function. Fills in the code's address and the offset
 * of the current instruction, from which the line follows; *code_head: the code object's fixed
 * part. */
static enum gp_python_step python_step(const struct gp_python_way *way, const char *frame, uint64_t *code,
                                       const char **code_head, char *room, int64_t *offset)
{
    const struct gp_python_layout *at = &way->python->at;
    unsigned owner = at->frame_owner == GP_PYTHON_NONE ? 0 : (unsigned char)frame[at->frame_owner];
    if (owner >= GP_OWNER_C)
        return GP_STEP_SKIP;
    /* From 3.14 on the low bits of a reference say whether it is counted. */
    *code = gp_python_word(frame, at->frame_code) & ~7ull;
    uint32_t bytes = at->code_bytes == GP_PYTHON_NONE ? at->code_table + 8u : at->code_bytes;
    *code_head = gp_python_at(way->objects, *code, room, bytes);
    if (!*code_head || gp_python_word(*code_head, at->object_type) != way->python->code_type)
        return GP_STEP_END;
    if (at->code_bytes == GP_PYTHON_NONE) {
        *offset = 2 * (int64_t)(int32_t)gp_python_half(frame, at->frame_instr);
        return GP_STEP_FRAME;
    }
    *offset = (int64_t)(gp_python_word(frame, at->frame_instr) - *code - at->code_bytes);
    /* A function whose arguments are still being set up is not running yet. */
    if (owner != GP_OWNER_GENERATOR && *offset < 2 * (int64_t)(int32_t)gp_python_half(*code_head, at->code_traceable))
        return GP_STEP_SKIP;
    return GP_STEP_FRAME;
}

static bool python_names(const struct gp_python_way *way, uint64_t code, uint32_t version, const char *head,
                         struct gp_python_frame *out)
{
    const struct gp_python_layout *at = &way->python->at;
    if (version && way->texts && gp_python_names_kept(code, version, out))
        return true;
    if (!gp_python_string(way, gp_python_word(head, at->code_name), &out->function) ||
        !gp_python_string(way, gp_python_word(head, at->code_file), &out->file))
        return false;
    if (version && way->texts)
        gp_python_names_keep(code, version, out);
    return true;
}

static bool python_frame(const struct gp_python_way *way, uint64_t code, const char *head, int64_t offset,
                         struct gp_python_frame *out)
{
    const struct gp_python_layout *at = &way->python->at;
    uint32_t version = at->code_version == GP_PYTHON_NONE || !way->alone ? 0 : gp_python_half(head, at->code_version);
    out->code = code;
    if (!python_names(way, code, version, head, out))
        return false;
    if (version && gp_python_line_kept(code, version, offset, &out->line))
        return true;
    out->line = gp_python_line(way, gp_python_word(head, at->code_table), gp_python_half(head, at->code_line), offset);
    if (version && !way->objects)
        gp_python_line_keep(code, version, offset, out->line);
    return true;
}

static unsigned python_walk(const struct gp_python_way *way, uint64_t innermost, struct gp_python_frame *frames,
                            unsigned room, bool *more)
{
    const struct gp_python_layout *at = &way->python->at;
    char frame_room[GP_PYTHON_FRAME], code_room[GP_PYTHON_CODE];
    /* Read only the fields that are used: the memory behind a frame may be unmapped. */
    uint32_t frame_bytes = at->frame_owner == GP_PYTHON_NONE ? at->frame_instr + 4u : at->frame_owner + 1u;
    unsigned count = 0, skipped = 0;
    for (uint64_t next = innermost; next && skipped < GP_PYTHON_SKIPPED;) {
        const char *frame = python_frame_at(way, next, frame_room, frame_bytes), *head = NULL;
        uint64_t code = 0;
        int64_t offset = 0;
        enum gp_python_step step = frame ? python_step(way, frame, &code, &head, code_room, &offset) : GP_STEP_END;
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
        if (!python_frame(way, code, head, offset, &frames[count]))
            break;
        count++;
    }
    return count;
}

/* For a thread during whose walk another one may shut the interpreter down. Objects that its frames
 * hold are never freed, because the frames' references are not given back; from 3.12 on interned
 * names may be freed. */
static GP_COLD unsigned python_walk_copied(const struct gp_python_way *here, uint64_t state,
                                           struct gp_python_frame *out, unsigned room, bool *more)
{
    const struct gp_python *python = here->python;
    struct gp_python_frames frames;
    struct gp_python_way way = *here;
    bool all = python->free_threaded || __atomic_load_n(&x_ended, __ATOMIC_RELAXED);
    way.frames = all || python->version > GP_PYTHON_310 ? &frames : NULL;
    way.objects = all ? &frames.copies : NULL;
    way.texts = all || python->version > GP_PYTHON_311 ? &frames.copies : NULL;
    unsigned count = 0;
    if (python_frames_start(&frames, state + python->at.state_frame, python->finalizing))
        count = python_walk(&way, python_innermost(&way, &frames.copies, state), out, room, more);
    python_hint_store(&frames.next);
    if (!frames.copies.ended)
        return count;
    __atomic_store_n(&x_ended, 1, __ATOMIC_RELAXED);
    *more = false;
    return 0;
}

/* The arrays of gp_stack_python's callers, of python_walk_copied and of python_wide together take 20 KiB. */
#define GP_PYTHON_ROOM (24u << 10)

/* The main thread's stack grows. A coroutine's stack on which Python runs is larger than this. */
static bool python_has_room(void)
{
    uint64_t sp = (uint64_t)(uintptr_t)__builtin_frame_address(0), low = sp - GP_PYTHON_ROOM;
    const struct gp_own_stack *stack = &gp_own_stack_bounds;
    if (GP_LIKELY((low >= stack->low && sp < stack->high)) || python_main_thread())
        return true;
    return gp_own_stack_widen(low) || !gp_own_stack_widen(sp);
}

bool gp_stack_has_python(bool *more)
{
    const struct gp_python *python = gp_python_find();
    if (!python || !python->state())
        return false;
    bool has_room = python_has_room();
    *more |= !has_room;
    return has_room;
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
        /* Until 3.11 this is the first state of the thread, whichever interpreter it belongs to. */
        if (python->version < GP_PYTHON_312 && !way.alone) {
            gp_python_note_set(
                "Python 3.10 and 3.11 with sub-interpreters: frames are read only for threads that hold the GIL");
            return 0;
        }
        if (!python_main_thread())
            return python_walk_copied(&way, (uint64_t)(uintptr_t)state, frames, room, more);
    }
    return python_walk(&way, python_innermost(&way, NULL, (uint64_t)(uintptr_t)state), frames, room, more);
}
