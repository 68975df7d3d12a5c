/* SPDX-License-Identifier: MIT
 *
 * nvtx.c: see source.h.  NVTX is a header: each object that includes it has a table of function
 * pointers, and hands us a function that finds the table.  Numbers and layouts here are those that
 * the header keeps for tools (version 3).
 *
 * The end of a range does not say its name, so the names of open ranges are kept: in one table for
 * the process, a record for each range that is open.  A thread's records form a list from the
 * innermost outwards.
 */
#include "account/feed/feed.h"
#include "base/compiler.h"
#include "base/kept.h"
#include "base/text.h"
#include "base/thread.h"
#include "source/source.h"
#include <errno.h>
#include <gpuprof/gpuprof.h>
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <wchar.h>

/* An event holds 31 bytes; "/nvtx:" takes 6.  Begin and end are cut alike, so that they match. */
#define GP_NVTX_NAME 25u

/* Open at once in the whole process: a thread nests some ten, and a thousand threads may. */
#define GP_NVTX_RANGES  16384u
#define GP_NVTX_STRINGS 16384u /* registered; PyTorch and NCCL register some hundred */
#define GP_NVTX_DOMAINS 256u   /* libraries have one each; those beyond share the last */
#define GP_NVTX_PROBES  64u    /* places tried before a table counts as full */

#define GP_NVTX_UNTRACKED (-2) /* the result of push and pop without a tool that counts levels */
#define GP_NVTX_NAMELESS  (1ull << 63)

struct gp_nvtx_range {
    uint64_t x_state; /* generation x 2 + 1 if in use: an id that has ended is not found again */
    uint32_t tid;     /* that pushed it; 0: it is free, or it was started and any thread may end it */
    uint16_t below;   /* next of the thread's list, + 1; 0 none */
    uint8_t domain;
    char name[GP_NVTX_NAME + 1];
};

enum { GP_STRING_FREE, GP_STRING_BUSY, GP_STRING_READY };
struct gp_nvtx_string {
    uint32_t x_state;
    char name[GP_NVTX_NAME + 1];
};

static struct gp_nvtx_range x_ranges[GP_NVTX_RANGES];
static struct gp_nvtx_string x_strings[GP_NVTX_STRINGS];
static const struct gp_nvtx_string nvtx_no_string = {GP_STRING_READY, "?"}; /* there was no room */
static char nvtx_domains[GP_NVTX_DOMAINS];                                  /* their addresses are the handles */
static uint32_t x_domain_count;
static char nvtx_quiet; /* its address is the handle of a domain whose ranges are no marks */
GP_KEEP(x_strings);     /* the program holds their addresses */
GP_KEEP(nvtx_domains);
GP_KEEP(x_domain_count);
GP_KEEP(nvtx_quiet);
static uint32_t x_on;

struct gp_nvtx_attributes { /* version 2, of 48 bytes, which is the only one there ever was in NVTX 3 */
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    union {
        const char *ascii;
        const wchar_t *wide;
        const struct gp_nvtx_string *string;
    };
};
_Static_assert(sizeof(struct gp_nvtx_attributes) == 48, "NVTX");

enum { GP_MESSAGE_ASCII = 1, GP_MESSAGE_WIDE, GP_MESSAGE_STRING };

/* ---- names ----------------------------------------------------------------------------------------------------- */

/* Cuts at a character; readers clean invalid ones. */
static void nvtx_ascii(char name[GP_NVTX_NAME + 1], const char *text)
{
    if (!text)
        text = "?";
    size_t length = strnlen(text, GP_NVTX_NAME + 1);
    if (length > GP_NVTX_NAME)
        for (length = GP_NVTX_NAME; length && ((unsigned char)text[length] & 0xc0) == 0x80;)
            length--;
    memcpy(name, text, length);
    name[length] = '\0';
}

static void nvtx_wide(char name[GP_NVTX_NAME + 1], const wchar_t *text)
{
    size_t used = 0;
    for (; text && *text; text++) {
        uint32_t code = (uint32_t)*text;
        if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
            code = '?';
        char unit[4];
        size_t bytes = gp_utf8_put(unit, code);
        if (used + bytes > GP_NVTX_NAME)
            break;
        memcpy(name + used, unit, bytes);
        used += bytes;
    }
    name[used] = '\0';
    if (!text)
        nvtx_ascii(name, NULL);
}

/* A program may pass a handle that another tool or no tool gave it. */
static const char *nvtx_string_name(const struct gp_nvtx_string *string)
{
    uintptr_t offset = (uintptr_t)string - (uintptr_t)x_strings;
    if (string == &nvtx_no_string || offset >= sizeof(x_strings) || offset % sizeof(x_strings[0]) != 0)
        return "?";
    /* [string.A] acquire: the name; pairs with [string.R]. */
    return __atomic_load_n(&string->x_state, __ATOMIC_ACQUIRE) == GP_STRING_READY ? string->name : "?";
}

static void nvtx_message(char name[GP_NVTX_NAME + 1], const struct gp_nvtx_attributes *attributes)
{
    int32_t type = attributes && attributes->size >= sizeof(*attributes) ? attributes->message_type : 0;
    if (type == GP_MESSAGE_ASCII)
        nvtx_ascii(name, attributes->ascii);
    else if (type == GP_MESSAGE_WIDE)
        nvtx_wide(name, attributes->wide);
    else
        nvtx_ascii(name, type == GP_MESSAGE_STRING ? nvtx_string_name(attributes->string) : NULL);
}

/* Equal names have one entry: programs register the same string over and over. */
static const struct gp_nvtx_string *nvtx_register(const char name[GP_NVTX_NAME + 1])
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (const char *at = name; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 16777619u;
    for (uint32_t i = 0; i < GP_NVTX_PROBES; i++) {
        struct gp_nvtx_string *string = &x_strings[(hash + i) % GP_NVTX_STRINGS];
        uint32_t state = __atomic_load_n(&string->x_state, __ATOMIC_ACQUIRE); /* [string.A] */
        if (state == GP_STRING_READY && strcmp(string->name, name) == 0)
            return string;
        if (state != GP_STRING_FREE || !__atomic_compare_exchange_n(&string->x_state, &state, GP_STRING_BUSY, false,
                                                                    __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            continue; /* another's, or being made: at worst a name is kept twice */
        memcpy(string->name, name, GP_NVTX_NAME + 1);
        /* [string.R] release: the name; pairs with [string.A]. */
        __atomic_store_n(&string->x_state, GP_STRING_READY, __ATOMIC_RELEASE);
        return string;
    }
    return &nvtx_no_string;
}

/* ---- open ranges ----------------------------------------------------------------------------------------------- */

/* gp_thread.range: the innermost open range of this thread, + 1 (0 none) in the low half; in the
 * high half how many ranges inside of that one found no room, whose names are not known at their
 * end. */
#define GP_RANGE_TOP(_range)    ((_range)&0xffffu)
#define GP_RANGE_UNKEPT(_range) ((_range) >> 16)
#define GP_RANGE_ONE_UNKEPT     0x10000u
#define GP_RANGE_MOST_UNKEPT    0xffffu
_Static_assert(GP_NVTX_RANGES < 0xffff, "an index + 1 fits the low half");

static bool nvtx_try(struct gp_nvtx_range *range)
{
    /* [range.A] acquire: its last user is done with it; pairs with [range.R]. */
    uint64_t state = __atomic_load_n(&range->x_state, __ATOMIC_RELAXED);
    return !(state & 1) &&
           __atomic_compare_exchange_n(&range->x_state, &state, state + 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* False: another thread has ended it. */
static bool nvtx_give(struct gp_nvtx_range *range, uint64_t state)
{
    /* [range.R] release: the reads of the record; pairs with [range.A]. */
    return __atomic_compare_exchange_n(&range->x_state, &state, state + 1, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* Threads that ended inside their ranges leave records behind. */
static GP_COLD void nvtx_reclaim(uint32_t from)
{
    int saved_errno = errno;
    for (uint32_t i = 0; i < GP_NVTX_PROBES; i++) {
        struct gp_nvtx_range *range = &x_ranges[(from + i) % GP_NVTX_RANGES];
        uint64_t state = __atomic_load_n(&range->x_state, __ATOMIC_RELAXED);
        uint32_t tid = __atomic_load_n(&range->tid, __ATOMIC_RELAXED);
        if (!(state & 1) || !tid || syscall(SYS_tgkill, getpid(), tid, 0) == 0 || errno != ESRCH)
            continue;
        /* Taken before it is free, so no thread gets it with the number of the dead thread in it. */
        if (__atomic_compare_exchange_n(&range->x_state, &state, state + 2, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED)) {
            __atomic_store_n(&range->tid, 0, __ATOMIC_RELAXED);
            nvtx_give(range, state + 2);
        }
    }
    errno = saved_errno;
}

/* Index + 1; 0: no room. */
static uint32_t nvtx_take(void)
{
    /* Threads begin at places of their own; 61 is prime to the size and more than most threads
     * nest. */
    uint32_t from = gp_thread.number * 61u;
    for (int again = 0; again < 2; again++) {
        for (uint32_t i = 0; i < GP_NVTX_PROBES; i++)
            if (nvtx_try(&x_ranges[(from + i) % GP_NVTX_RANGES]))
                return (from + i) % GP_NVTX_RANGES + 1;
        if (!again)
            nvtx_reclaim(from);
    }
    return 0;
}

static void nvtx_say(const char *prefix, const char *name)
{
    char text[8 + GP_NVTX_NAME];
    size_t used = strlen(prefix);
    memcpy(text, prefix, used);
    memcpy(text + used, name, strlen(name) + 1);
    gp_feed_event(GP_EVENT_MARK, text);
}

bool gp_nvtx_enter(void)
{
    /* [nvtx.A] acquire: the accounts; pairs with [nvtx.R]. */
    return __atomic_load_n(&x_on, __ATOMIC_ACQUIRE) && gp_thread_enter();
}

void gp_nvtx_start(void)
{
    __atomic_store_n(&x_on, 1, __ATOMIC_RELEASE); /* [nvtx.R] release: pairs with [nvtx.A] */
}

static uint8_t nvtx_domain(const void *handle)
{
    uintptr_t index = (uintptr_t)handle - (uintptr_t)nvtx_domains;
    return index < GP_NVTX_DOMAINS ? (uint8_t)index : 0;
}

static void nvtx_push(const void *domain, const char *name)
{
    struct gp_thread *me = &gp_thread;
    uint32_t at = GP_RANGE_UNKEPT(me->range) ? 0 : nvtx_take();
    nvtx_say("nvtx:", name);
    if (at) {
        struct gp_nvtx_range *range = &x_ranges[at - 1];
        __atomic_store_n(&range->tid, me->tid, __ATOMIC_RELAXED);
        range->below = (uint16_t)GP_RANGE_TOP(me->range);
        range->domain = nvtx_domain(domain);
        strcpy(range->name, name);
        me->range = at;
    } else if (GP_RANGE_UNKEPT(me->range) < GP_RANGE_MOST_UNKEPT) {
        me->range += GP_RANGE_ONE_UNKEPT;
    }
}

/* Ranges nest in each domain by itself.  A pop without a push, or of a push before our start, is
 * none of ours. */
static void nvtx_pop(const void *handle)
{
    struct gp_thread *me = &gp_thread;
    uint8_t domain = nvtx_domain(handle);
    struct gp_nvtx_range *above = NULL;
    if (GP_RANGE_UNKEPT(me->range)) {
        me->range -= GP_RANGE_ONE_UNKEPT;
        nvtx_say("/nvtx:", "");
        return;
    }
    for (uint32_t at = GP_RANGE_TOP(me->range); at; at = above->below) {
        struct gp_nvtx_range *range = &x_ranges[at - 1];
        if (range->domain != domain) {
            above = range;
            continue;
        }
        nvtx_say("/nvtx:", range->name);
        if (above)
            above->below = range->below;
        else
            me->range = range->below;
        __atomic_store_n(&range->tid, 0, __ATOMIC_RELAXED);
        nvtx_give(range, __atomic_load_n(&range->x_state, __ATOMIC_RELAXED));
        return;
    }
}

/* The id says the generation too: ending it twice ends it once. */
static uint64_t nvtx_begin(const char *name)
{
    uint32_t at = nvtx_take();
    nvtx_say("nvtx:", name);
    if (!at)
        return GP_NVTX_NAMELESS;
    struct gp_nvtx_range *range = &x_ranges[at - 1];
    strcpy(range->name, name);
    return __atomic_load_n(&range->x_state, __ATOMIC_RELAXED) << 16 | at;
}

static void nvtx_end(uint64_t id)
{
    char name[GP_NVTX_NAME + 1] = "";
    uint32_t at = (uint32_t)(id & 0xffff);
    if (id != GP_NVTX_NAMELESS) {
        if (at == 0 || at > GP_NVTX_RANGES || !(id >> 16 & 1))
            return;
        struct gp_nvtx_range *range = &x_ranges[at - 1];
        memcpy(name, range->name, sizeof(name));
        name[GP_NVTX_NAME] = '\0';
        if (__atomic_load_n(&range->tid, __ATOMIC_RELAXED) || !nvtx_give(range, id >> 16))
            return;
    }
    nvtx_say("/nvtx:", name);
}

/* ---- what NVTX calls ------------------------------------------------------------------------------------------- */

typedef void gp_nvtx_do(const void *domain, const char *name);

static void nvtx_mark(const void *domain, const char *name)
{
    (void)domain;
    nvtx_say("nvtx.", name);
}

static void nvtx_with(gp_nvtx_do *action, const void *domain, const struct gp_nvtx_attributes *attributes)
{
    char name[GP_NVTX_NAME + 1];
    if (!gp_nvtx_enter())
        return;
    nvtx_message(name, attributes);
    action(domain, name);
    gp_thread_leave();
}

static uint64_t nvtx_start_with(const struct gp_nvtx_attributes *attributes)
{
    char name[GP_NVTX_NAME + 1];
    if (!gp_nvtx_enter())
        return 0;
    nvtx_message(name, attributes);
    uint64_t id = nvtx_begin(name);
    gp_thread_leave();
    return id;
}

#define GP_ASCII(_text) (&(struct gp_nvtx_attributes){.size = 48, .message_type = GP_MESSAGE_ASCII, .ascii = (_text)})
#define GP_WIDE(_text)  (&(struct gp_nvtx_attributes){.size = 48, .message_type = GP_MESSAGE_WIDE, .wide = (_text)})

static void nvtx_mark_ex(const struct gp_nvtx_attributes *attributes)
{
    nvtx_with(nvtx_mark, NULL, attributes);
}

static void nvtx_mark_a(const char *text)
{
    nvtx_with(nvtx_mark, NULL, GP_ASCII(text));
}

static void nvtx_mark_w(const wchar_t *text)
{
    nvtx_with(nvtx_mark, NULL, GP_WIDE(text));
}

static uint64_t nvtx_start_a(const char *text)
{
    return nvtx_start_with(GP_ASCII(text));
}

static uint64_t nvtx_start_w(const wchar_t *text)
{
    return nvtx_start_with(GP_WIDE(text));
}

static void nvtx_end_id(uint64_t id)
{
    if (!gp_nvtx_enter())
        return;
    nvtx_end(id);
    gp_thread_leave();
}

static int nvtx_push_ex(const struct gp_nvtx_attributes *attributes)
{
    nvtx_with(nvtx_push, NULL, attributes);
    return GP_NVTX_UNTRACKED;
}

static int nvtx_push_a(const char *text)
{
    nvtx_with(nvtx_push, NULL, GP_ASCII(text));
    return GP_NVTX_UNTRACKED;
}

static int nvtx_push_w(const wchar_t *text)
{
    nvtx_with(nvtx_push, NULL, GP_WIDE(text));
    return GP_NVTX_UNTRACKED;
}

static int nvtx_domain_pop(const void *domain)
{
    if (domain != &nvtx_quiet && gp_nvtx_enter()) {
        nvtx_pop(domain);
        gp_thread_leave();
    }
    return GP_NVTX_UNTRACKED;
}

static int nvtx_pop_plain(void)
{
    return nvtx_domain_pop(NULL);
}

static void nvtx_domain_mark(const void *domain, const struct gp_nvtx_attributes *attributes)
{
    if (domain != &nvtx_quiet)
        nvtx_with(nvtx_mark, domain, attributes);
}

static uint64_t nvtx_domain_start(const void *domain, const struct gp_nvtx_attributes *attributes)
{
    return domain == &nvtx_quiet ? 0 : nvtx_start_with(attributes);
}

static void nvtx_domain_end(const void *domain, uint64_t id)
{
    (void)domain;
    nvtx_end_id(id);
}

static int nvtx_domain_push(const void *domain, const struct gp_nvtx_attributes *attributes)
{
    if (domain != &nvtx_quiet)
        nvtx_with(nvtx_push, domain, attributes);
    return GP_NVTX_UNTRACKED;
}

/* Strings and domains are made before our start as well, and serve after it. */
static const void *nvtx_string_a(const void *domain, const char *text)
{
    char name[GP_NVTX_NAME + 1];
    (void)domain;
    nvtx_ascii(name, text);
    return nvtx_register(name);
}

static const void *nvtx_string_w(const void *domain, const wchar_t *text)
{
    char name[GP_NVTX_NAME + 1];
    (void)domain;
    nvtx_wide(name, text);
    return nvtx_register(name);
}

static const void *nvtx_domain_w(const wchar_t *name)
{
    (void)name;
    uint32_t index = __atomic_add_fetch(&x_domain_count, 1, __ATOMIC_RELAXED); /* a number, publishes nothing */
    return &nvtx_domains[index < GP_NVTX_DOMAINS ? index : GP_NVTX_DOMAINS - 1];
}

/* CUB, Thrust and NCCL put a range around each of their calls: these would be taken for the program's steps. */
static const void *nvtx_domain_a(const char *name)
{
    return name && (!strcmp(name, "CCCL") || !strcmp(name, "NCCL")) ? &nvtx_quiet : nvtx_domain_w(NULL);
}

/* ---- door ------------------------------------------------------------------------------------------------------ */

typedef void gp_nvtx_function(void);
enum { GP_NVTX_CORE = 1, GP_NVTX_CORE2 = 5 };

static const struct gp_nvtx_slot {
    uint32_t module, number;
    gp_nvtx_function *function;
} gp_nvtx_slots[] = {
#define GP_SLOT(_module, _number, _function)                                                                           \
    {                                                                                                                  \
        _module, _number, (gp_nvtx_function *)(_function)                                                              \
    }
    GP_SLOT(GP_NVTX_CORE, 1, nvtx_mark_ex),       GP_SLOT(GP_NVTX_CORE, 2, nvtx_mark_a),
    GP_SLOT(GP_NVTX_CORE, 3, nvtx_mark_w),        GP_SLOT(GP_NVTX_CORE, 4, nvtx_start_with),
    GP_SLOT(GP_NVTX_CORE, 5, nvtx_start_a),       GP_SLOT(GP_NVTX_CORE, 6, nvtx_start_w),
    GP_SLOT(GP_NVTX_CORE, 7, nvtx_end_id),        GP_SLOT(GP_NVTX_CORE, 8, nvtx_push_ex),
    GP_SLOT(GP_NVTX_CORE, 9, nvtx_push_a),        GP_SLOT(GP_NVTX_CORE, 10, nvtx_push_w),
    GP_SLOT(GP_NVTX_CORE, 11, nvtx_pop_plain),    GP_SLOT(GP_NVTX_CORE2, 1, nvtx_domain_mark),
    GP_SLOT(GP_NVTX_CORE2, 2, nvtx_domain_start), GP_SLOT(GP_NVTX_CORE2, 3, nvtx_domain_end),
    GP_SLOT(GP_NVTX_CORE2, 4, nvtx_domain_push),  GP_SLOT(GP_NVTX_CORE2, 5, nvtx_domain_pop),
    GP_SLOT(GP_NVTX_CORE2, 10, nvtx_string_a),    GP_SLOT(GP_NVTX_CORE2, 11, nvtx_string_w),
    GP_SLOT(GP_NVTX_CORE2, 12, nvtx_domain_a),    GP_SLOT(GP_NVTX_CORE2, 13, nvtx_domain_w),
};

struct gp_nvtx_callbacks { /* export table 1 */
    size_t bytes;
    /* Gets the table of pointers to the caller's function pointers, and returns its length.  0: no
     * such module. */
    int (*table_of)(uint32_t module, gp_nvtx_function ****table, uint32_t *count);
};

GP_EXPORT int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t number))
{
    const struct gp_nvtx_callbacks *callbacks = export_table ? export_table(1) : NULL;
    if (!callbacks || callbacks->bytes < sizeof(*callbacks) || !callbacks->table_of)
        return 0; /* no version 3: NVTX goes on as without a tool */
    for (size_t i = 0; i < GP_COUNT(gp_nvtx_slots); i++) {
        const struct gp_nvtx_slot *slot = &gp_nvtx_slots[i];
        gp_nvtx_function ***table = NULL;
        uint32_t count = 0;
        if (callbacks->table_of(slot->module, &table, &count) && table && slot->number < count && table[slot->number])
            *table[slot->number] = slot->function;
    }
    return 1;
}
