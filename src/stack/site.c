/* SPDX-License-Identifier: MIT
 *
 * site.c: maps a stack to the number of its site. Rows, frames and names lie in the session and are
 * append-only; an index in private memory finds a row by its stack's hash. A known stack, which
 * nearly every one is, is found without a lock.
 *
 * Viewers map the session too, and a faulty one may write there. So the fill counts of the tables
 * are kept in private memory, and a value read back from the session is never used as an address or
 * a length before it is checked.
 */
#include "base/compiler.h"
#include "base/kept.h"
#include "base/lock.h"
#include "python.h"
#include "stack/internal.h"
#include "stack/stack.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* A large training program with Python and C++ stacks has some thousand sites; a stack has some 20
 * frames, with Python up to 100. A program that exceeds the limits would have to be ten times as
 * varied; its further sites are counted as lost. 28 MiB in all, of which only used pages take
 * memory. */
#define ROW_LIMIT        (1u << 16)
#define FRAME_LIMIT      (1u << 20)
#define STRING_LIMIT     (1u << 22)
#define SITE_INDEX_WORDS (2 * ROW_LIMIT)
/* The last rows are kept for sites without frames: at most one per device, kind and `summed`. */
#define ROW_SPARE 2048u

/* When native and Python frames together are too deep, at least this many native frames are kept: a
 * CUDA call from Python passes through some 40 of them before the first of the interpreter's. */
#define NATIVE_FRAMES 64u

struct stack {
    unsigned natives, pythons;
    bool truncated, poor; /* poor: a name had no room */
    const struct gp_wire_frame *python;
    uint64_t pcs[GP_SITE_FRAMES];
};

static const struct gp_wire_frame no_frames[1];

struct key {
    const struct stack *stack;
    uint64_t hash;
    uint8_t device, kind;
    bool summed;
};

uint32_t gp_site_modes, gp_site_partial;

static struct gp_wire_sites *head;
static uint32_t x_before[GP_WIRE_DEVICES]; /* the site "before stacks" of each device; 0: none yet */
static struct gp_wire_site *rows;
static struct gp_wire_frame *frames;
static uint64_t *x_index;               /* hash >> 32 | row */
static uint32_t row_count, frame_count; /* rows and frames in use; under the lock */
static struct gp_lock lock = GP_LOCK_INIT(GP_RANK_SITE);

static uint64_t page_up(uint64_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

uint64_t gp_site_bytes(void)
{
    return page_up(sizeof *head) + (uint64_t)ROW_LIMIT * sizeof *rows + (uint64_t)FRAME_LIMIT * sizeof *frames +
           STRING_LIMIT;
}

static void site_layout(struct gp_wire_sites *made)
{
    made->row_bytes = sizeof *rows;
    made->frame_bytes = sizeof *frames;
    made->row_limit = ROW_LIMIT;
    made->frame_limit = FRAME_LIMIT;
    made->string_limit = STRING_LIMIT;
    made->rows_offset = page_up(sizeof *head);
    made->frames_offset = made->rows_offset + (uint64_t)ROW_LIMIT * sizeof *rows;
    made->strings_offset = made->frames_offset + (uint64_t)FRAME_LIMIT * sizeof *frames;
    made->rows = row_count = 1; /* unknown */
    frame_count = 0;
}

static bool modes_valid(uint32_t modes)
{
    return (modes & ~(GP_SITES_NATIVE | GP_SITES_PYTHON)) == 0;
}

static int site_tables(void *memory, uint64_t bytes)
{
    if (bytes < gp_site_bytes())
        return -EINVAL;
    x_index = gp_kept_map(SITE_INDEX_WORDS * sizeof *x_index, MAP_NORESERVE);
    if (!x_index)
        return -errno;
    struct gp_wire_sites *made = memory;
    site_layout(made);
    rows = (struct gp_wire_site *)((char *)memory + made->rows_offset);
    frames = (struct gp_wire_frame *)((char *)memory + made->frames_offset);
    int rc = gp_names_start(made, (char *)memory + made->strings_offset, STRING_LIMIT);
    if (rc != 0) {
        gp_kept_unmap(x_index, SITE_INDEX_WORDS * sizeof *x_index);
        return rc;
    }
    gp_live_start(made, rows, ROW_LIMIT);
    head = made;
    return 0;
}

static void modes_set(uint32_t modes)
{
    __atomic_store_n(&head->modes, modes, __ATOMIC_RELAXED);
    /* [modes.R] release: the tables; pairs with [modes.A]. */
    __atomic_store_n(&gp_site_modes, modes, __ATOMIC_RELEASE);
}

int gp_site_start(void *memory, uint64_t bytes, uint32_t modes)
{
    if (!modes || !modes_valid(modes))
        return -EINVAL;
    if (head)
        return -EBUSY;
    int rc = modes & GP_SITES_NATIVE ? gp_native_start() : 0;
    if (rc == 0)
        rc = site_tables(memory, bytes);
    if (rc == 0)
        modes_set(modes);
    return rc;
}

/* The name of site 0: its only frame has the form of a Python frame, which has a name and no
 * address. The frame precedes the row's count of frames, which a reader may see at any time. */
static void before_name(struct gp_wire_frame *frame)
{
    static const char name[] = GP_SITE_BEFORE;
    const struct gp_python_frame named = {
        .code = (uint64_t)(uintptr_t)name, .function = {name, sizeof name - 1}, .file = {name, 0}};
    bool full = false;
    gp_names_frame(&named, frame, &full);
}

/* From here on blocks without a site are counted too. */
static void before_begin(void)
{
    struct gp_wire_frame frame;
    if (gp_site_is_partial())
        return;
    before_name(&frame);
    gp_lock_take(&lock);
    if (frame_count <= FRAME_LIMIT - GP_SITE_FRAMES) {
        uint32_t first = frame_count;
        frames[first] = frame;
        __atomic_store_n(&head->frames, frame_count = first + 1, __ATOMIC_RELEASE); /* [site.R] pairs with [site.A] */
        rows[0].first_frame = first;
        __atomic_store_n(&rows[0].frame_count, 1, __ATOMIC_RELEASE);
    }
    gp_lock_give(&lock);
    /* [partial.R] release: the tables; pairs with [partial.A]. */
    __atomic_store_n(&gp_site_partial, 1, __ATOMIC_RELEASE);
}

int gp_site_switch(void *memory, uint64_t bytes, uint32_t modes)
{
    if (!modes_valid(modes))
        return -EINVAL;
    if (modes == gp_site_modes)
        return 0;
    int rc = modes & GP_SITES_NATIVE ? gp_native_start() : 0;
    if (rc == 0 && !head)
        rc = site_tables(memory, bytes);
    if (rc != 0)
        return rc;
    /* First, so that no thread meets a mode without it: a block that gets no site is then counted. */
    if (!modes || !gp_site_modes)
        before_begin();
    modes_set(modes);
    return 0;
}

static char *explain_text; /* constant after start */
static uint64_t explain_bytes;
static uint32_t x_explained;

void gp_site_explain_to(char *text, uint64_t bytes)
{
    explain_text = text;
    explain_bytes = bytes;
}

/* The first thread that has a reason writes it. A viewer that reads while it is written sees the
 * start of the text. */
static GP_COLD void explain(const char *note)
{
    if (!explain_text || __atomic_exchange_n(&x_explained, 1, __ATOMIC_RELAXED))
        return;
    for (uint64_t i = 0; note[i] && i + 1 < explain_bytes; i++)
        explain_text[i] = note[i];
}

/* ---- the stack --------------------------------------------------------------------------------------------------- */

static void stack_native(struct stack *stack, unsigned room)
{
    bool more = false;
    stack->natives = gp_stack_native(stack->pcs, room, &more);
    stack->truncated |= more;
}

/* Native frames come first in the row; Python frames get the remaining room. */
static __attribute__((noinline)) void stack_python(struct stack *stack, struct gp_wire_frame *out, bool native)
{
    struct gp_python_frame python[GP_SITE_FRAMES];
    bool more = false;
    unsigned n = gp_stack_python(python, GP_SITE_FRAMES, &more);
    if (native)
        stack_native(stack, n < GP_SITE_FRAMES - NATIVE_FRAMES ? GP_SITE_FRAMES - n : NATIVE_FRAMES);
    if (n > GP_SITE_FRAMES - stack->natives) {
        n = GP_SITE_FRAMES - stack->natives;
        more = true;
    }
    stack->truncated |= more;
    stack->pythons = n;
    for (unsigned i = 0; i < n; i++)
        gp_names_frame(&python[i], &out[i], &stack->poor);
}

/* ---- the tables -------------------------------------------------------------------------------------------------- */

static uint64_t key_hash(const struct key *key)
{
    const struct stack *stack = key->stack;
    uint64_t hash = (uint64_t)stack->pythons << 32 | stack->natives;
    for (unsigned i = 0; i < stack->natives; i++)
        hash = gp_mix_more(hash, stack->pcs[i]);
    for (unsigned i = 0; i < stack->pythons; i++) /* pc is a union with both names */
        hash = gp_mix_more(hash, stack->python[i].pc + (uint64_t)stack->python[i].line * 0x9e3779b97f4a7c15ull);
    return gp_mix(hash, (uint64_t)key->summed << 17 | (uint64_t)stack->truncated << 16 | (uint64_t)key->device << 8 |
                            key->kind);
}

static bool natives_are(const struct gp_wire_frame *at, const uint64_t *pcs, unsigned n)
{
    uint64_t different = 0; /* nearly always equal, so stopping early gains nothing */
    for (unsigned i = 0; i < n; i++)
        different |= (at[i].pc ^ pcs[i]) | (at[i].type ^ GP_FRAME_NATIVE);
    return different == 0;
}

static bool key_is(const struct key *key, uint32_t id)
{
    const struct gp_wire_site *row = &rows[id];
    const struct stack *stack = key->stack;
    uint64_t first = __atomic_load_n(&row->first_frame, __ATOMIC_RELAXED);
    if (first > FRAME_LIMIT - GP_SITE_FRAMES)
        return false;
    const struct gp_wire_frame *at = &frames[first];
    return row->hash == key->hash && row->device == key->device && row->kind == key->kind &&
           row->summed == key->summed && row->frame_count == stack->natives + stack->pythons &&
           row->truncated == stack->truncated && natives_are(at, stack->pcs, stack->natives) &&
           memcmp(at + stack->natives, stack->python, stack->pythons * sizeof *at) == 0;
}

/* The word of the key in the index, or the empty word where it belongs. The index is never full: it
 * has twice as many words as there are rows. */
static uint64_t *key_find(const struct key *key, uint32_t *id)
{
    for (uint32_t i = 0;; i++) {
        uint64_t *at = &x_index[(key->hash + i) % SITE_INDEX_WORDS];
        /* [row.A] acquire pairs with [row.R]: the row and its frames. */
        uint64_t word = __atomic_load_n(at, __ATOMIC_ACQUIRE);
        *id = (uint32_t)word;
        if (!word || (word >> 32 == key->hash >> 32 && key_is(key, *id)))
            return at;
    }
}

static void site_write(const struct key *key, uint32_t id)
{
    const struct stack *stack = key->stack;
    uint32_t first = frame_count, count = stack->natives + stack->pythons;
    struct gp_wire_site *row = &rows[id];
    for (unsigned i = 0; i < stack->natives; i++)
        frames[first + i] = (struct gp_wire_frame){.pc = stack->pcs[i], .type = GP_FRAME_NATIVE};
    memcpy(&frames[first + stack->natives], stack->python, stack->pythons * sizeof *frames);
    GP_TESTPOINT("site.frames");
    /* [site.R] release: the frames and the row before the counts; pairs with [site.A]. */
    __atomic_store_n(&head->frames, frame_count = first + count, __ATOMIC_RELEASE);
    row->first_frame = count ? first : 0;
    row->frame_count = count;
    row->kind = key->kind;
    row->device = key->device;
    row->truncated = stack->truncated;
    row->summed = key->summed;
    row->hash = key->hash;
    GP_TESTPOINT("site.row");
    __atomic_store_n(&head->rows, row_count = id + 1, __ATOMIC_RELEASE);
}

static unsigned stack_depth(const struct stack *stack)
{
    return stack->natives + stack->pythons;
}

static void lost(uint64_t *count)
{
    __atomic_fetch_add(count, 1, __ATOMIC_RELAXED); /* relaxed: a statistic */
}

/* Adds the site, unless another thread has done so. 0: no room. */
static GP_COLD uint32_t site_add(const struct key *key)
{
    uint32_t id;
    gp_lock_take(&lock);
    uint64_t *at = key_find(key, &id);
    if (id) {
        /* another thread has added it */
    } else if (row_count == ROW_LIMIT || (row_count >= ROW_LIMIT - ROW_SPARE && stack_depth(key->stack))) {
        lost(&head->lost_rows);
    } else if (frame_count > FRAME_LIMIT - GP_SITE_FRAMES &&
               stack_depth(key->stack)) { /* key_is relies on room for the deepest stack */
        lost(&head->lost_frames);
    } else {
        id = row_count;
        site_write(key, id);
        /* [row.R] release pairs with [row.A]. */
        __atomic_store_n(at, key->hash >> 32 << 32 | id, __ATOMIC_RELEASE);
    }
    gp_lock_give(&lock);
    return id;
}

static uint32_t site_of(struct key *key)
{
    uint32_t id;
    key->hash = key_hash(key);
    key_find(key, &id);
    return GP_LIKELY(id) ? id : site_add(key);
}

/* A stack that cannot be read or stored has the site without frames, whose name is "[unknown]". */
static GP_COLD uint32_t site_nameless(struct key *key, struct stack *stack)
{
    stack->natives = stack->pythons = 0;
    stack->truncated = false;
    return site_of(key);
}

static uint32_t site_captured(struct key *key, struct stack *stack)
{
    lost(&head->captures);
    if (GP_UNLIKELY(stack->poor))
        lost(&head->lost_strings);
    uint32_t id = stack_depth(stack) ? site_of(key) : 0;
    return GP_LIKELY(id) ? id : site_nameless(key, stack);
}

/* The arrays of Python frames take 8 KiB of the stack, and only threads that run Python come here. */
static __attribute__((noinline)) uint32_t site_python(struct key *key, struct stack *stack, bool native)
{
    struct gp_wire_frame read[GP_SITE_FRAMES];
    stack->python = read;
    stack_python(stack, read, native);
    return site_captured(key, stack);
}

uint32_t gp_site_here(int device, enum gp_wire_kind kind, bool summed)
{
    struct stack stack;
    struct key key = {.stack = &stack, .device = (uint8_t)device, .kind = (uint8_t)kind, .summed = summed};
    /* [modes.A] acquire: the tables; pairs with [modes.R]. */
    uint32_t modes = __atomic_load_n(&gp_site_modes, __ATOMIC_ACQUIRE);
    if (!modes || device < 0 || device >= (int)GP_WIRE_DEVICES || kind <= GP_KIND_NONE || kind >= GP_KINDS)
        return 0;
    stack.natives = stack.pythons = 0;
    stack.truncated = stack.poor = false;
    stack.python = no_frames;
    bool python = modes & GP_SITES_PYTHON && gp_stack_has_python(&stack.truncated);
    if (modes & GP_SITES_PYTHON && GP_UNLIKELY(gp_python_note() != NULL))
        explain(gp_python_note());
    if (python)
        return site_python(&key, &stack, modes & GP_SITES_NATIVE);
    if (modes & GP_SITES_NATIVE)
        stack_native(&stack, GP_SITE_FRAMES);
    return site_captured(&key, &stack);
}

/* ---- memory without a site --------------------------------------------------------------------------------------- */

static uint32_t before_site(unsigned device)
{
    /* [before.A] acquire: the row; pairs with [before.R]. */
    return device < GP_WIRE_DEVICES ? __atomic_load_n(&x_before[device], __ATOMIC_ACQUIRE) : 0;
}

void gp_site_plain_alloc(unsigned device, uint64_t bytes)
{
#ifdef GP_SITE_MUTANT_INSIDE
    if (gp_site_on())
        return;
#endif
    gp_site_alloc(before_site(device), bytes);
}

void gp_site_plain_free(unsigned device, uint64_t bytes)
{
    gp_site_free(before_site(device), bytes);
}

static GP_COLD uint32_t before_make(unsigned device)
{
    struct gp_wire_frame frame;
    struct stack stack = {.pythons = 1, .python = &frame};
    struct key key = {.stack = &stack, .device = (uint8_t)device, .kind = GP_KIND_NONE, .summed = true};
    before_name(&frame);
    return site_of(&key);
}

void gp_site_settle(unsigned device, int64_t bytes, int64_t count)
{
    if (!gp_site_is_partial() || device >= GP_WIRE_DEVICES)
        return;
    uint32_t id = before_site(device);
    if (!id) {
        if (bytes == 0)
            return;
        id = before_make(device);
        gp_live_settle(id, bytes, count, true);
        /* [before.R] release: the row; pairs with [before.A]. */
        __atomic_store_n(&x_before[device], id, __ATOMIC_RELEASE);
        return;
    }
    gp_live_settle(id, bytes, count, false);
}
