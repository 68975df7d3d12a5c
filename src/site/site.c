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
#include "site.h"
#include "base/lock.h"
#include "base/testpoint.h"
#include "live.h"
#include "mix.h"
#include "names.h"
#include "native.h"
#include "python.h"
#include "stack.h"
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

/* When native and Python frames together are too deep, at least this many native frames are kept: a
 * CUDA call from Python passes through some 40 of them before the first of the interpreter's. */
#define NATIVE_FRAMES 64u

struct stack {
    unsigned natives, pythons;
    bool truncated, poor; /* poor: a name had no room */
    uint64_t pcs[GP_SITE_FRAMES];
    struct gp_wire_frame python[GP_SITE_FRAMES];
};

struct key {
    const struct stack *stack;
    uint64_t hash;
    uint8_t device, kind;
    bool summed;
};

uint32_t gp_site_modes;

static struct gp_wire_sites *head;
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

static void site_layout(void)
{
    head->row_bytes = sizeof *rows;
    head->frame_bytes = sizeof *frames;
    head->row_limit = ROW_LIMIT;
    head->frame_limit = FRAME_LIMIT;
    head->string_limit = STRING_LIMIT;
    head->rows_offset = page_up(sizeof *head);
    head->frames_offset = head->rows_offset + (uint64_t)ROW_LIMIT * sizeof *rows;
    head->strings_offset = head->frames_offset + (uint64_t)FRAME_LIMIT * sizeof *frames;
    head->rows = row_count = 1; /* unknown */
    frame_count = 0;
}

int gp_site_start(void *memory, uint64_t bytes, uint32_t modes)
{
    if (!modes || modes & ~(GP_SITES_NATIVE | GP_SITES_PYTHON) || bytes < gp_site_bytes())
        return -EINVAL;
    if (gp_site_modes)
        return -EBUSY;
    x_index = mmap(NULL, SITE_INDEX_WORDS * sizeof *x_index, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (x_index == MAP_FAILED)
        return -errno;
    head = memory;
    site_layout();
    rows = (struct gp_wire_site *)((char *)memory + head->rows_offset);
    frames = (struct gp_wire_frame *)((char *)memory + head->frames_offset);
    int rc = gp_names_start(head, (char *)memory + head->strings_offset, STRING_LIMIT);
    if (rc == 0 && modes & GP_SITES_NATIVE)
        rc = gp_native_start();
    if (rc != 0)
        return rc;
    gp_live_start(head, rows, ROW_LIMIT);
    head->modes = modes;
    gp_site_modes = modes;
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
static __attribute__((noinline)) void stack_python(struct stack *stack, bool native)
{
    struct gp_python_frame python[GP_SITE_FRAMES];
    bool more = false;
    unsigned n = gp_stack_python(python, GP_SITE_FRAMES, &more);
    if (GP_UNLIKELY(gp_python_note() != NULL))
        explain(gp_python_note());
    if (native)
        stack_native(stack, n < GP_SITE_FRAMES - NATIVE_FRAMES ? GP_SITE_FRAMES - n : NATIVE_FRAMES);
    if (n > GP_SITE_FRAMES - stack->natives) {
        n = GP_SITE_FRAMES - stack->natives;
        more = true;
    }
    stack->truncated |= more;
    stack->pythons = n;
    for (unsigned i = 0; i < n; i++)
        gp_names_frame(&python[i], &stack->python[i], &stack->poor);
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
    row->first_frame = first;
    row->frame_count = count;
    row->kind = key->kind;
    row->device = key->device;
    row->truncated = stack->truncated;
    row->summed = key->summed;
    row->hash = key->hash;
    GP_TESTPOINT("site.row");
    __atomic_store_n(&head->rows, row_count = id + 1, __ATOMIC_RELEASE);
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
    } else if (row_count == ROW_LIMIT) {
        lost(&head->lost_rows);
    } else if (frame_count > FRAME_LIMIT - GP_SITE_FRAMES) { /* key_is relies on room for the deepest stack */
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

uint32_t gp_site_here(int device, enum gp_wire_kind kind, bool summed)
{
    struct stack stack;
    struct key key = {.stack = &stack, .device = (uint8_t)device, .kind = (uint8_t)kind, .summed = summed};
    if (!gp_site_on() || device < 0 || device >= (int)GP_WIRE_DEVICES || kind <= GP_KIND_NONE || kind >= GP_KINDS)
        return 0;
    stack.natives = stack.pythons = 0;
    stack.truncated = stack.poor = false;
    if (gp_site_modes & GP_SITES_PYTHON)
        stack_python(&stack, gp_site_modes & GP_SITES_NATIVE);
    else
        stack_native(&stack, GP_SITE_FRAMES);
    lost(&head->captures);
    if (GP_UNLIKELY(stack.poor))
        lost(&head->lost_strings);
    return stack.natives + stack.pythons ? site_of(&key) : 0;
}
