/* SPDX-License-Identifier: MIT
 *
 * python_find.c: finds the interpreter among the loaded objects (the program itself, libpython, or
 * a plug-in's private libpython), whenever it is loaded, and knows how its structures are laid out.
 *
 * It does not use dlsym: dlsym waits for the loader's lock, which another thread holds while it
 * runs constructors, which may wait for this very thread; and it misses objects opened with
 * RTLD_LOCAL. The loader's list has its own lock, which is held for a walk of the list alone
 * (base/loader.h), so the search costs no more than one.
 */
#include "base/compiler.h"
#include "base/loader.h"
#include "stack/python.h"
#include "stack/stack.h"
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <time.h>

/* A program without Python is searched again at this interval; in between, each stack costs one
 * read of a coarse clock. */
#define GP_PYTHON_AGAIN_NS 100000000ull

static const char *x_note;

/* Found interpreters. Slots beyond the first are for threads that found the interpreter at the same
 * moment. */
static struct gp_python python_slots[8];
static uint32_t x_slots;
static const struct gp_python *x_python;
static uint64_t x_again; /* no search before this time */
static uint64_t x_adds;  /* objects loaded so far, at the last search */

void gp_python_note_set(const char *text)
{
    const char *expected = NULL;
    /* The first reason stays. The text is constant, so relaxed order is enough. */
    __atomic_compare_exchange_n(&x_note, &expected, text, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

const char *gp_python_note(void)
{
    return __atomic_load_n(&x_note, __ATOMIC_RELAXED);
}

/* ---- symbols of one object --------------------------------------------------------------------------------------- */

struct gp_python_object {
    uint64_t base;
    const ElfW(Sym) * symbols;
    const char *names;
    const uint32_t *hash; /* GNU hash table; NULL: the object has none, and no symbol of it is found */
    char path[1024];      /* "": the program itself */
};

/* glibc relocates the addresses in the dynamic section, other C libraries do not. */
static uint64_t python_dynamic(uint64_t base, uint64_t value)
{
    return value < base ? value + base : value;
}

static bool python_object_open(struct gp_python_object *object, const struct dl_phdr_info *info)
{
    *object = (struct gp_python_object){.base = info->dlpi_addr};
    const ElfW(Dyn) *entry = NULL;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (const ElfW(Dyn) *)(uintptr_t)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    }
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        uintptr_t at = python_dynamic(object->base, entry->d_un.d_ptr);
        if (entry->d_tag == DT_SYMTAB)
            object->symbols = (const ElfW(Sym) *)at;
        else if (entry->d_tag == DT_STRTAB)
            object->names = (const char *)at;
        else if (entry->d_tag == DT_GNU_HASH)
            object->hash = (const uint32_t *)at;
    }
    return object->symbols && object->names && object->hash;
}

static uint32_t python_hash(const char *name)
{
    uint32_t hash = 5381;
    for (; *name; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

/* The address of a symbol that the object itself defines; 0: not defined. */
static uint64_t python_symbol(const struct gp_python_object *object, const char *name)
{
    if (!object->hash)
        return 0;
    /* The table: number of buckets, first hashed symbol, words of the filter, shift; then filter,
     * buckets, and one word per symbol. */
    uint32_t buckets = object->hash[0], first = object->hash[1], words = object->hash[2], shift = object->hash[3];
    const ElfW(Addr) *filter = (const ElfW(Addr) *)(object->hash + 4);
    const uint32_t *bucket = (const uint32_t *)(filter + words), *chain = bucket + buckets;
    uint32_t hash = python_hash(name), bits = sizeof *filter * 8;
    if (!buckets || !words)
        return 0;
    ElfW(Addr) word = filter[hash / bits % words];
    if (!(word >> hash % bits & word >> (hash >> shift) % bits & 1))
        return 0;
    uint32_t i = bucket[hash % buckets];
    if (i < first)
        return 0;
    for (;; i++) {
        const ElfW(Sym) *symbol = object->symbols + i;
        if ((chain[i - first] | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF &&
            strcmp(object->names + symbol->st_name, name) == 0)
            return object->base + symbol->st_value;
        if (chain[i - first] & 1)
            return 0;
    }
}

/* ---- which object ------------------------------------------------------------------------------------------------ */

struct gp_python_look {
    struct gp_python_object program, python, object; /* object: the one that is looked at */
    uint64_t adds;
    unsigned seen;
    bool again; /* whether or not something was loaded */
    bool found;
};

static int python_visit(struct dl_phdr_info *info, size_t size, void *data)
{
    struct gp_python_look *look = data;
    if (look->seen++ == 0) {
        if (size >= offsetof(struct dl_phdr_info, dlpi_adds) + sizeof info->dlpi_adds)
            look->adds = info->dlpi_adds;
        if (!look->again && look->adds && look->adds == __atomic_load_n(&x_adds, __ATOMIC_RELAXED))
            return 1; /* nothing was loaded since the last search */
        python_object_open(&look->program, info);
    }
    struct gp_python_object *object = &look->object;
    if (!python_object_open(object, info) || !python_symbol(object, "PyGILState_GetThisThreadState"))
        return 0;
    if (look->seen > 1 && (!info->dlpi_name || strlen(info->dlpi_name) >= sizeof object->path))
        return 0;
    if (look->seen > 1)
        strcpy(object->path, info->dlpi_name);
    look->python = *object;
    look->found = true;
    return 1;
}

/* Data of libpython may live in the program, which then has a copy relocation and exports the
 * symbol. */
static uint64_t python_data(const struct gp_python_look *look, const char *name)
{
    uint64_t at = python_symbol(&look->program, name);
    return at ? at : python_symbol(&look->python, name);
}

/* An object is listed before it is relocated, and it may be unloaded. Opening it once more waits
 * for its relocation and prevents unloading. That takes the loader's lock once per process, and
 * never if the interpreter is the program itself. */
static bool python_pin(const struct gp_python_object *object)
{
    return !object->path[0] || GP_LOADER(dlopen(object->path, RTLD_NOLOAD | RTLD_NODELETE | RTLD_LAZY));
}

/* ---- which version ----------------------------------------------------------------------------------------------- */

/* The same from 3.10 to 3.12. */
#define PYTHON_OBJECTS .object_type = 8, .bytes_size = 16, .bytes_data = 32, .text_length = 16, .text_state = 32

static const struct gp_python_layout python_layouts[] = {
    {
        /* 3.10: frames are objects, and have an index instead of an address. */
        .state_frame = 24,
        .cframe_frame = GP_PYTHON_NONE,
        .frame_code = 32,
        .frame_previous = 24,
        .frame_owner = GP_PYTHON_NONE,
        .frame_instr = 96,
        .code_file = 104,
        .code_name = 112,
        .code_table = 120,
        .code_line = 40,
        .code_traceable = GP_PYTHON_NONE,
        .code_bytes = GP_PYTHON_NONE,
        .code_version = GP_PYTHON_NONE,
        .text_ascii = 48,
        .text_wide = 72,
        PYTHON_OBJECTS,
    },
    {
        /* 3.11 */
        .state_frame = 56,
        .cframe_frame = 8,
        .frame_code = 32,
        .frame_previous = 48,
        .frame_owner = 69,
        .frame_instr = 56,
        .code_file = 112,
        .code_name = 128,
        .code_table = 136,
        .code_line = 72,
        .code_traceable = 168,
        .code_bytes = 184,
        .code_version = GP_PYTHON_NONE,
        .text_ascii = 48,
        .text_wide = 72,
        PYTHON_OBJECTS,
    },
    {
        /* 3.12 */
        .state_frame = 56,
        .cframe_frame = 0,
        .frame_code = 0,
        .frame_previous = 8,
        .frame_owner = 70,
        .frame_instr = 56,
        .code_file = 112,
        .code_name = 128,
        .code_table = 136,
        .code_line = 68,
        .code_traceable = 176,
        .code_bytes = 192,
        .code_version = 92,
        .text_ascii = 40,
        .text_wide = 56,
        PYTHON_OBJECTS,
    },
};

/* From 3.13 on _PyRuntime starts with a cookie and offsets for debuggers, whose number differs by
 * version. These are the offsets that are used here ... */
enum python_offset {
    STATE_SIZE,
    STATE_FRAME,
    FRAME_SIZE,
    FRAME_PREVIOUS,
    FRAME_CODE,
    FRAME_INSTR,
    FRAME_OWNER,
    CODE_SIZE,
    CODE_FILE,
    CODE_NAME,
    CODE_TABLE,
    CODE_LINE,
    CODE_BYTES,
    OBJECT_SIZE,
    OBJECT_TYPE,
    BYTES_SIZE,
    BYTES_DATA,
    TEXT_STATE,
    TEXT_LENGTH,
    TEXT_ASCII,
    PYTHON_OFFSETS
};

/* ... and their positions, in words. */
static const uint8_t python_places[][PYTHON_OFFSETS] = {
    {19, 23, 28, 29, 30, 31, 33, 34, 35, 37, 38, 39, 43, 44, 45, 65, 66, 68, 69, 70}, /* 3.13 */
    {22, 26, 31, 32, 33, 34, 36, 39, 40, 42, 43, 44, 48, 50, 51, 75, 76, 78, 79, 80}, /* 3.14 */
};

/* A field of so many bytes that has to end at or before another offset. */
static const struct {
    uint8_t field, bytes, end;
} python_inside[] = {
    {STATE_FRAME, 8, STATE_SIZE}, {FRAME_INSTR, 8, FRAME_OWNER}, {FRAME_PREVIOUS, 8, FRAME_OWNER},
    {FRAME_CODE, 8, FRAME_OWNER}, {FRAME_OWNER, 1, FRAME_SIZE},  {OBJECT_TYPE, 8, OBJECT_SIZE},
    {CODE_FILE, 8, CODE_BYTES},   {CODE_NAME, 8, CODE_BYTES},    {CODE_TABLE, 8, CODE_BYTES},
    {CODE_LINE, 28, CODE_BYTES},  {TEXT_STATE, 4, TEXT_ASCII},   {TEXT_LENGTH, 8, TEXT_ASCII},
};

/* The largest value of an offset that no other one bounds. */
static const struct {
    uint8_t offset;
    uint16_t most;
} python_bounds[] = {
    {STATE_SIZE, 4096}, {FRAME_SIZE, GP_PYTHON_FRAME}, {CODE_SIZE, 512},
    {TEXT_ASCII, 128},  {CODE_BYTES, GP_PYTHON_CODE},  {BYTES_DATA, 128},
    {BYTES_SIZE, 120},
};

static bool python_sound(const uint64_t offset[PYTHON_OFFSETS])
{
    for (size_t i = 0; i < GP_COUNT(python_bounds); i++)
        if (offset[python_bounds[i].offset] > python_bounds[i].most)
            return false;
    for (size_t i = 0; i < GP_COUNT(python_inside); i++)
        if (offset[python_inside[i].end] < python_inside[i].bytes ||
            offset[python_inside[i].field] > offset[python_inside[i].end] - python_inside[i].bytes)
            return false;
    return offset[CODE_BYTES] >= 24;
}

static bool python_offsets(struct gp_python_layout *at, uint32_t version, const uint64_t *words, const char **why)
{
    uint64_t offset[PYTHON_OFFSETS];
    if (memcmp(words, "xdebugpy", 8) != 0 || words[1] >> 16 != version || words[2] > 1) {
        *why = "this Python does not describe its structures (no _Py_DebugOffsets)";
        return false;
    }
    if (words[2] == 1 && version >= GP_PYTHON_314) {
        /* In 3.14 each thread runs its own copy of the byte code, and strings keep their kind in
         * other bits. */
        *why = "frames of a free-threaded Python are read in version 3.13 only";
        return false;
    }
    for (unsigned i = 0; i < PYTHON_OFFSETS; i++)
        offset[i] = words[python_places[version - GP_PYTHON_313][i]];
    *why = "this Python's _Py_DebugOffsets make no sense";
    if (!python_sound(offset))
        return false;
    *at = (struct gp_python_layout){
        .state_frame = (uint16_t)offset[STATE_FRAME],
        .cframe_frame = GP_PYTHON_NONE,
        .frame_code = (uint16_t)offset[FRAME_CODE],
        .frame_previous = (uint16_t)offset[FRAME_PREVIOUS],
        .frame_owner = (uint16_t)offset[FRAME_OWNER],
        .frame_instr = (uint16_t)offset[FRAME_INSTR],
        .code_file = (uint16_t)offset[CODE_FILE],
        .code_name = (uint16_t)offset[CODE_NAME],
        .code_table = (uint16_t)offset[CODE_TABLE],
        .code_line = (uint16_t)offset[CODE_LINE],
        .code_bytes = (uint16_t)offset[CODE_BYTES],
        /* Two offsets that the table leaves out: co_extra lies between _co_firsttraceable, padded
         * to 8 bytes, and the code; five counts lie between the first line and the version. */
        .code_traceable = (uint16_t)(offset[CODE_BYTES] - 16),
        .code_version = (uint16_t)(offset[CODE_LINE] + 24),
        .object_type = (uint16_t)offset[OBJECT_TYPE],
        .bytes_size = (uint16_t)offset[BYTES_SIZE],
        .bytes_data = (uint16_t)offset[BYTES_DATA],
        .text_length = (uint16_t)offset[TEXT_LENGTH],
        .text_state = (uint16_t)offset[TEXT_STATE],
        .text_ascii = (uint16_t)offset[TEXT_ASCII],
        .text_wide = (uint16_t)(offset[TEXT_ASCII] + 16),
    };
    *why = NULL;
    return true;
}

bool gp_python_layout(struct gp_python_layout *at, uint32_t version, const void *debug, const char **why)
{
    if (version < GP_PYTHON_310 || version > GP_PYTHON_314) {
        *why = version < GP_PYTHON_310 ? "Python frames are read from version 3.10 on; this Python is older"
                                       : "Python frames are read up to version 3.14; this Python is newer";
        return false;
    }
    if (version < GP_PYTHON_313) {
        *at = python_layouts[version - GP_PYTHON_310];
        *why = NULL;
        return true;
    }
    if (debug)
        return python_offsets(at, version, debug, why);
    *why = "this Python does not export _PyRuntime, which describes its structures";
    return false;
}

static uint32_t python_version(const struct gp_python_look *look)
{
    uint64_t at = python_data(look, "Py_Version");
    if (at)
        return (uint32_t)(*(const unsigned long *)(uintptr_t)at >> 16);
    /* Py_Version came with 3.11, Py_NewRef with 3.10. */
    return python_symbol(&look->python, "Py_NewRef") ? GP_PYTHON_310 : GP_PYTHON_310 - 1;
}

static void *python_function(const struct gp_python_look *look, const char *name, const char *older)
{
    uint64_t at = python_symbol(&look->python, name);
    return (void *)(uintptr_t)(at || !older ? at : python_symbol(&look->python, older));
}

static void python_fill(struct gp_python *python, const struct gp_python_look *look)
{
    const char *why = NULL;
    python->version = python_version(look);
    *(void **)&python->state = python_function(look, "PyGILState_GetThisThreadState", NULL);
    *(void **)&python->holder = python_function(look, "PyThreadState_GetUnchecked", "_PyThreadState_UncheckedGet");
    *(void **)&python->finalizing = python_function(look, "Py_IsFinalizing", "_Py_IsFinalizing");
    *(void **)&python->newest = python_function(look, "PyInterpreterState_Head", NULL);
    *(void **)&python->first = python_function(look, "PyInterpreterState_Main", NULL);
    python->code_type = python_data(look, "PyCode_Type");
    const void *debug = (const void *)(uintptr_t)python_data(look, "_PyRuntime");
    python->usable = gp_python_layout(&python->at, python->version, debug, &why);
    python->free_threaded =
        python->usable && debug && ((const uint64_t *)debug)[2] == 1 && python->version >= GP_PYTHON_313;
    if (python->usable && !(python->state && python->holder && python->finalizing && python->newest && python->first &&
                            python->code_type)) {
        why = "this Python does not export the functions that find a thread's frames";
        python->usable = false;
    }
    if (why)
        gp_python_note_set(why);
}

/* ---- search ------------------------------------------------------------------------------------------------------ */

static GP_COLD const struct gp_python *python_search(void)
{
    static const uint32_t room = GP_COUNT(python_slots);
    static struct gp_python_look look; /* 3 KiB: too large for a small stack */
    static uint32_t x_searching;
    const struct gp_python *found = NULL;
    uint32_t slot;
    int saved = errno;
    /* [look.A] acquire: `look` as the last search left it; pairs with [look.R]. */
    if (__atomic_exchange_n(&x_searching, 1, __ATOMIC_ACQUIRE))
        return NULL;
    look = (struct gp_python_look){0};
    if (!gp_loader_look(python_visit, &look)) {
        __atomic_store_n(&x_searching, 0, __ATOMIC_RELEASE); /* [look.R] pairs with [look.A] */
        return NULL;
    }
    if (!look.found) {
        __atomic_store_n(&x_adds, look.adds, __ATOMIC_RELAXED);
    } else if (!python_pin(&look.python)) {
        gp_python_note_set("Python was found but is being unloaded");
    } else if ((slot = __atomic_fetch_add(&x_slots, 1, __ATOMIC_RELAXED)) < room) {
        python_fill(&python_slots[slot], &look);
        found = &python_slots[slot];
        /* [python.R1] release: the slot's contents; pairs with [python.A1]. */
        __atomic_store_n(&x_python, found, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&x_searching, 0, __ATOMIC_RELEASE); /* [look.R] pairs with [look.A] */
    errno = saved;
    return found;
}

const struct gp_python *gp_python_find(void)
{
    /* [python.A1] acquire: pairs with [python.R1]. */
    const struct gp_python *python = __atomic_load_n(&x_python, __ATOMIC_ACQUIRE);
    if (GP_UNLIKELY(!python)) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
        uint64_t time = (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec,
                 again = __atomic_load_n(&x_again, __ATOMIC_RELAXED);
        /* One thread searches; the others go without Python frames for that instant rather than
         * wait. */
        if (time < again || !__atomic_compare_exchange_n(&x_again, &again, time + GP_PYTHON_AGAIN_NS, false,
                                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return NULL;
        python = python_search();
    }
    return python && python->usable ? python : NULL;
}

/* ---- for others --------------------------------------------------------------------------------------------------- */

bool gp_python_symbols(const char *const *names, void **out, unsigned count)
{
    struct gp_python_look look = {.again = true};
    if (!gp_loader_look(python_visit, &look) || !look.found || !python_pin(&look.python))
        return false;
    for (unsigned i = 0; i < count; i++)
        out[i] = (void *)(uintptr_t)python_data(&look, names[i]);
    return true;
}
