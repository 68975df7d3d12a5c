/* SPDX-License-Identifier: MIT
 *
 * owner.c: finds the owner of a driver call by the return addresses of its thread; see stack.h.
 *
 * The list of objects is copied from the loader whenever that has changed, under `lock`. Readers
 * take no lock: they read between two equal even values of x_turn. Each word of an entry is stored
 * with release and loaded with acquire: a reader that sees a new word also sees the odd turn that
 * came before it, in its second load of x_turn. A row is given to an owner when
 * it owns memory for the first time, and is never taken back.
 */
#include "base/compiler.h"
#include "base/known.h"
#include "base/loader.h"
#include "base/lock.h"
#include "base/thread.h"
#include "stack/internal.h"
#include "stack/stack.h"
#include <string.h>

/* Return addresses that are looked at. From the callback to a library that calls the runtime are 8
 * frames with CUPTI; a custom allocator under a framework's adds 10. */
#define OWNER_FRAMES 32u

static struct gp_lock lock = GP_LOCK_INIT(GP_RANK_OWNER);
/* Written under the lock, with x_turn odd. */
static struct gp_owner_object objects[GP_OBJECTS];
static unsigned x_object_count;
static uint32_t x_turn;                          /* [owner.A1] [owner.R1] */
static struct gp_owner_object fresh[GP_OBJECTS]; /* under the lock: the next list */
static uint64_t x_generation;                    /* of the loader's list that `objects` copies */

/* Under the lock. */
static struct gp_wire_owner rows[GP_WIRE_OWNERS];
static unsigned row_count;
static uint8_t x_jit_row = GP_OBJECT_NO_ROW; /* written under the lock */

static bool started; /* constant after start */
static bool (*x_changed)(const uint64_t *pcs, unsigned count);
static const char *x_segment_prefix; /* written under the lock */

/* ---- the table of owners ---------------------------------------------------------------------------------------- */

static void owner_row(unsigned row, const char *owner, const char *library)
{
    memcpy(rows[row].owner, owner, strnlen(owner, sizeof(rows[row].owner) - 1));
    memcpy(rows[row].library, library, strnlen(library, sizeof(rows[row].library) - 1));
}

/* Under the lock. */
static uint8_t owner_named(const char *owner, const char *library)
{
    unsigned row = 0;
    /* Of names that a row has no room for, the files tell which are one. */
    bool cut = strlen(owner) >= sizeof(rows[0].owner) - 1;
    while (row < row_count && (strncmp(rows[row].owner, owner, sizeof(rows[row].owner) - 1) != 0 ||
                               (cut && strncmp(rows[row].library, library, sizeof(rows[row].library) - 1) != 0)))
        row++;
    if (row == row_count && row < GP_OWNER_OTHER) {
        owner_row(row, owner, library);
        row_count++;
    }
    if (row == row_count) {
        row = GP_OWNER_OTHER;
        owner_row(row, "other", "");
    }
    return (uint8_t)row;
}

uint8_t gp_owner_named(const char *owner, const char *library)
{
    gp_lock_take(&lock);
    uint8_t row = owner_named(owner, library);
    gp_lock_give(&lock);
    return row;
}

unsigned gp_owner_rows(struct gp_wire_owner out[GP_WIRE_OWNERS])
{
    gp_lock_take(&lock);
    unsigned count = rows[GP_OWNER_OTHER].owner[0] ? GP_WIRE_OWNERS : row_count;
    memcpy(out, rows, sizeof(rows));
    gp_lock_give(&lock);
    return count;
}

/* ---- the list of objects ---------------------------------------------------------------------------------------- */

/* Under the lock. */
static bool owner_is_segment(const struct gp_owner_object *object)
{
    const char *prefix = __atomic_load_n(&x_segment_prefix, __ATOMIC_RELAXED);
    return prefix && strncmp(object->name, prefix, strlen(prefix)) == 0;
}

/* Under the lock. [owner.R2] release: the odd turn before it; pairs with [owner.A2]. */
static void owner_publish(unsigned count)
{
#ifndef GP_OWNER_MUTANT_TURN /* tests/torture/framework_mutant.c */
    __atomic_store_n(&x_turn, x_turn + 1, __ATOMIC_RELAXED);
#endif
    for (unsigned i = 0; i < count; i++) {
        struct gp_owner_object *object = &objects[i];
        __atomic_store_n(&object->x_low, fresh[i].x_low, __ATOMIC_RELEASE);
        GP_TESTPOINT("owner.entry");
        __atomic_store_n(&object->x_high, fresh[i].x_high, __ATOMIC_RELEASE);
        __atomic_store_n(&object->x_owner, fresh[i].x_owner, __ATOMIC_RELEASE);
        __atomic_store_n(&object->x_row, fresh[i].x_row, __ATOMIC_RELEASE);
        __atomic_store_n(&object->x_segment, owner_is_segment(&fresh[i]), __ATOMIC_RELEASE);
        memcpy(object->name, fresh[i].name, sizeof(object->name));
    }
    __atomic_store_n(&x_object_count, count, __ATOMIC_RELEASE);
    /* [owner.R1] release: the entries; pairs with [owner.A1]. */
    __atomic_store_n(&x_turn, (x_turn | 1) + 1, __ATOMIC_RELEASE);
}

/* With the loader's list locked, so that no thread waits for it with our lock held. */
static void owner_list(void *arg)
{
    (void)arg;
    gp_lock_take(&lock);
    int count = gp_object_list(fresh);
    GP_TESTPOINT("owner.listed");
    owner_publish((unsigned)count); /* inside gp_loader_with it does not fail */
    gp_lock_give(&lock);
}

/* Threads that come meanwhile do the same work again. They must not answer before `changed` is
 * through: a segment that they count as a plain allocation would be counted twice. */
static GP_COLD void owner_refresh(uint64_t generation, const uint64_t *pcs, unsigned n)
{
    bool listed = gp_loader_with(owner_list, NULL);
    bool (*changed)(const uint64_t *, unsigned) = __atomic_load_n(&x_changed, __ATOMIC_ACQUIRE);
    if ((changed && !changed(pcs, n)) || !listed)
        generation = UINT64_MAX;
    __atomic_store_n(&x_generation, generation, __ATOMIC_RELEASE);
}

/* Under the lock. An object without a known name owns under its own, without the version:
 * libmyengine.so. */
static GP_COLD uint8_t owner_learn(uint64_t pc)
{
    char name[GP_OBJECT_NAME] = "";
    gp_lock_take(&lock);
    int at = gp_object_find(objects, x_object_count, pc);
    uint8_t row = GP_OWNER_UNKNOWN;
    if (at >= 0 && objects[at].x_owner) {
        struct gp_owner_object *object = &objects[at];
        gp_known_name(object->name, name, sizeof(name));
        row = owner_named(*object->x_owner ? object->x_owner : name, object->name);
        __atomic_store_n(&object->x_row, row, __ATOMIC_RELAXED);
    }
    gp_lock_give(&lock);
    return row;
}

static GP_COLD uint8_t owner_learn_jit(void)
{
    gp_lock_take(&lock);
    uint8_t row = owner_named(GP_KNOWN_JIT, "");
    __atomic_store_n(&x_jit_row, row, __ATOMIC_RELAXED);
    gp_lock_give(&lock);
    return row;
}

/* What a stack shows; valid if the turn did not change meanwhile. */
struct owner_answer {
    struct {
        uint64_t pc; /* in the object; 0: none */
        uint8_t row; /* GP_OBJECT_NO_ROW: still to be learned */
    } owner, framework;
    bool jit;     /* code that no object has asked on behalf of the program */
    bool foreign; /* an address that no object has was found */
};

static inline bool owner_is_open(const struct owner_answer *answer, bool segments)
{
    return !answer->owner.pc || (segments && !answer->framework.pc);
}

/* Where the frame of this depth was found last: in most calls it is there again. Only a place to look at first. Threads
 * that take turns with different stacks would write one line again and again, so few share one. */
#define OWNER_HINTS 64u
static uint16_t x_hints[OWNER_HINTS][OWNER_FRAMES] __attribute__((aligned(64)));
_Static_assert(GP_OBJECTS <= UINT16_MAX, "an index fits");

static inline uint16_t *owner_hints(void)
{
    return x_hints[gp_thread.number % OWNER_HINTS];
}

static inline int owner_object(uint16_t *x_hint, unsigned count, uint64_t pc)
{
    unsigned hint = __atomic_load_n(x_hint, __ATOMIC_RELAXED);
    if (GP_LIKELY(hint < count && gp_object_has(&objects[hint], pc)))
        return (int)hint;
    int at = gp_object_find(objects, count, pc);
    if (at >= 0)
        __atomic_store_n(x_hint, (uint16_t)at, __ATOMIC_RELAXED);
    return at;
}

/* The frames from depth `from` to n. [owner.A2] acquire, here, in gp_object_has and in gp_object_find: pairs with
 * [owner.R2]. */
static inline void owner_search(struct owner_answer *answer, const uint64_t *pcs, unsigned from, unsigned n,
                                bool segments)
{
    unsigned count = __atomic_load_n(&x_object_count, __ATOMIC_ACQUIRE);
    bool listed = count < GP_OBJECTS; /* no object is missing */
    uint16_t *x_hints_here = owner_hints();
    for (unsigned i = from; i < n && owner_is_open(answer, segments); i++) {
        /* A return address may be the first byte after its function, and so after its object. */
        int at = owner_object(&x_hints_here[i], count, pcs[i] - 1);
        answer->foreign |= at < 0 && listed;
        if (at < 0)
            continue;
        const char *owner = answer->owner.pc ? NULL : __atomic_load_n(&objects[at].x_owner, __ATOMIC_ACQUIRE);
        if (owner) {
            answer->jit = GP_UNLIKELY(answer->foreign) && strcmp(owner, GP_KNOWN_PROGRAM) == 0;
            answer->owner.pc = pcs[i] - 1;
            answer->owner.row = __atomic_load_n(&objects[at].x_row, __ATOMIC_ACQUIRE);
        }
        if (segments && __atomic_load_n(&objects[at].x_segment, __ATOMIC_ACQUIRE)) {
            answer->framework.pc = pcs[i] - 1;
            answer->framework.row = __atomic_load_n(&objects[at].x_row, __ATOMIC_ACQUIRE);
        }
    }
}

/* The return addresses of the thread, as far as they were read. */
struct owner_stack {
    struct gp_stack_place place;
    unsigned n;
    bool ended;
    uint64_t pcs[OWNER_FRAMES];
};

/* Most owners are near, so the stack is read in parts, each as long as all before it. */
static void owner_read(struct owner_stack *stack, unsigned room)
{
    unsigned n = gp_stack_more(&stack->place, stack->pcs + stack->n, room);
    stack->n += n;
    stack->ended = n < room || stack->n == OWNER_FRAMES;
}

static inline void owner_look(struct owner_answer *answer, struct owner_stack *stack, bool segments)
{
    unsigned from = 0;
    *answer = (struct owner_answer){0};
    for (;;) {
        owner_search(answer, stack->pcs, from, stack->n, segments);
        if (GP_LIKELY(!owner_is_open(answer, segments)) || stack->ended)
            return;
        from = stack->n;
        owner_read(stack, from);
    }
}

/* The usual case: each frame up to the owner is where it was found last, and no framework divides memory. False: look. */
static inline bool owner_is_usual(struct owner_stack *stack, struct gp_owner *owner)
{
    uint32_t turn = __atomic_load_n(&x_turn, __ATOMIC_ACQUIRE); /* [owner.A1] */
    unsigned count = __atomic_load_n(&x_object_count, __ATOMIC_ACQUIRE);
    const uint16_t *x_hints_here = owner_hints();
    for (unsigned i = 0;; i++) {
        if (i == stack->n && !stack->ended)
            owner_read(stack, i);
        if (i == stack->n)
            return false;
        unsigned hint = __atomic_load_n(&x_hints_here[i], __ATOMIC_RELAXED);
        if (hint >= count || !gp_object_has(&objects[hint], stack->pcs[i] - 1))
            return false;
        if (!__atomic_load_n(&objects[hint].x_owner, __ATOMIC_ACQUIRE))
            continue;
        owner->row = __atomic_load_n(&objects[hint].x_row, __ATOMIC_ACQUIRE);
        return owner->row != GP_OBJECT_NO_ROW && turn % 2 == 0 && __atomic_load_n(&x_turn, __ATOMIC_RELAXED) == turn;
    }
}

static __attribute__((noinline)) struct gp_owner owner_find(struct owner_stack *stack)
{
    struct owner_answer answer;
    uint32_t turn;
    bool segments = __atomic_load_n(&x_segment_prefix, __ATOMIC_RELAXED);
    do {
        turn = __atomic_load_n(&x_turn, __ATOMIC_ACQUIRE); /* [owner.A1] acquire: pairs with [owner.R1] */
        if (GP_UNLIKELY(turn & 1)) {                       /* wait for the thread that writes the list */
            gp_lock_take(&lock);
            gp_lock_give(&lock);
            continue;
        }
        owner_look(&answer, stack, segments);
    } while (turn & 1 || __atomic_load_n(&x_turn, __ATOMIC_RELAXED) != turn);
    if (GP_UNLIKELY(answer.jit)) {
        answer.owner.row = __atomic_load_n(&x_jit_row, __ATOMIC_RELAXED);
        if (answer.owner.row == GP_OBJECT_NO_ROW)
            answer.owner.row = owner_learn_jit();
    } else if (GP_UNLIKELY(answer.owner.pc && answer.owner.row == GP_OBJECT_NO_ROW))
        answer.owner.row = owner_learn(answer.owner.pc);
    if (GP_UNLIKELY(answer.framework.pc && answer.framework.row == GP_OBJECT_NO_ROW))
        answer.framework.row = owner_learn(answer.framework.pc);
    return (struct gp_owner){answer.owner.pc ? answer.owner.row : GP_OWNER_UNKNOWN, answer.framework.pc != 0,
                             answer.framework.row};
}

struct gp_owner gp_owner_here(void)
{
    struct owner_stack stack;
    struct gp_owner owner = {.row = GP_OWNER_UNKNOWN};
    if (!started)
        return owner;
    stack.n = gp_stack_begin(&stack.place);
    stack.pcs[0] = stack.place.pc;
    stack.ended = stack.n == 0;
    uint64_t generation = gp_stack_generation();
    if (GP_UNLIKELY(generation != __atomic_load_n(&x_generation, __ATOMIC_ACQUIRE))) {
        if (!stack.ended)
            owner_read(&stack, OWNER_FRAMES - 1);
        owner_refresh(generation, stack.pcs, stack.n);
    }
    GP_TESTPOINT("owner.fresh");
    if (!__atomic_load_n(&x_segment_prefix, __ATOMIC_RELAXED) && GP_LIKELY(owner_is_usual(&stack, &owner)))
        return owner;
    return owner_find(&stack);
}

void gp_owner_on_change(bool (*changed)(const uint64_t *pcs, unsigned count))
{
    __atomic_store_n(&x_changed, changed, __ATOMIC_RELEASE);
}

void gp_owner_segments_of(const char *prefix)
{
    gp_lock_take(&lock);
    if (prefix != x_segment_prefix) {
        __atomic_store_n(&x_segment_prefix, prefix, __ATOMIC_RELAXED);
        for (unsigned i = 0; i < x_object_count; i++)
            __atomic_store_n(&objects[i].x_segment, owner_is_segment(&objects[i]), __ATOMIC_RELEASE);
    }
    gp_lock_give(&lock);
}

int gp_owner_start(void)
{
    int error = gp_native_start();
    if (error)
        return error;
    gp_lock_take(&lock);
    owner_row(GP_OWNER_UNKNOWN, "unknown", "");
    row_count = GP_OWNER_UNKNOWN + 1;
    x_generation = UINT64_MAX; /* no list has this number */
    gp_lock_give(&lock);
    started = true;
    return 0;
}
