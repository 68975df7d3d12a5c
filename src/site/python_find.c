/* SPDX-License-Identifier: MIT
 *
 * python_find.c: finds the interpreter among the loaded objects, however it came there (the program itself, libpython,
 * a plug-in's private libpython) and whenever, and says how its structures are laid out.
 *
 * Not dlsym: that waits for the loader's lock, which another thread holds while it runs constructors, which may wait
 * for this very thread; and it does not see what was opened RTLD_LOCAL.  The loader's list has a lock of its own that
 * is never held across anybody's code, so looking costs no more than a walk.
 */
#include "base/compiler.h"
#include "base/loader.h"
#include "site/python.h"
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <time.h>

/* A program without Python is asked again as often as this; that costs it a coarse clock per stack in between. */
#define GP_PYTHON_AGAIN_NS 100000000ull

static const char *x_note;

/* Found interpreters; the second and later are of threads that found the first at the same moment. */
static struct gp_python python_slots[8];
static uint32_t x_slots;
static const struct gp_python *x_python;
static uint64_t x_again; /* no look before this time */
static uint64_t x_adds;  /* objects loaded so far, at the last look */

void gp_python_note_set(const char *text)
{
    const char *none = NULL;
    /* The first reason stays; constant text, so nothing is published with it. */
    __atomic_compare_exchange_n(&x_note, &none, text, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
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
    const uint32_t *hash; /* GNU hash table; NULL: none, then nothing is found */
    char path[1024];      /* "": the program itself */
};

/* glibc has the addresses in the dynamic section relocated, others have not. */
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

/* Address of what the object itself defines under that name; 0: nothing. */
static uint64_t python_symbol(const struct gp_python_object *object, const char *name)
{
    if (!object->hash)
        return 0;
    /* Header: buckets, first hashed symbol, words of the filter, shift; then filter, buckets, one word a symbol. */
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
    struct gp_python_object program, python;
    uint64_t adds;
    unsigned seen;
    bool found;
};

static int python_visit(struct dl_phdr_info *info, size_t size, void *data)
{
    struct gp_python_look *look = data;
    if (look->seen++ == 0) {
        if (size >= offsetof(struct dl_phdr_info, dlpi_adds) + sizeof info->dlpi_adds)
            look->adds = info->dlpi_adds;
        if (look->adds && look->adds == __atomic_load_n(&x_adds, __ATOMIC_RELAXED))
            return 1; /* nothing was loaded since */
        python_object_open(&look->program, info);
    }
    struct gp_python_object object;
    if (!python_object_open(&object, info) || !python_symbol(&object, "PyGILState_GetThisThreadState"))
        return 0;
    if (look->seen > 1 && (!info->dlpi_name || strlen(info->dlpi_name) >= sizeof object.path))
        return 0;
    if (look->seen > 1)
        strcpy(object.path, info->dlpi_name);
    look->python = object;
    look->found = true;
    return 1;
}

/* Data of libpython may live in the program, which then has a copy relocation and exports it. */
static uint64_t python_data(const struct gp_python_look *look, const char *name)
{
    uint64_t at = python_symbol(&look->program, name);
    return at ? at : python_symbol(&look->python, name);
}

/* An object shows in the list before it is relocated, and may be unloaded: opening it once more waits for the one and
 * prevents the other.  That takes the loader's lock, once in the life of a process, and never for the program
 * itself. */
static bool python_pin(const struct gp_python_object *object)
{
    return !object->path[0] || dlopen(object->path, RTLD_NOLOAD | RTLD_NODELETE | RTLD_LAZY);
}

/* ---- which version ----------------------------------------------------------------------------------------------- */

static const struct gp_python_layout python_layouts[] = {
    {
        /* 3.10: frames are objects, and know an index instead of an address. */
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
        .object_type = 8,
        .bytes_size = 16,
        .bytes_data = 32,
        .text_length = 16,
        .text_state = 32,
        .text_ascii = 48,
        .text_wide = 72,
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
        .object_type = 8,
        .bytes_size = 16,
        .bytes_data = 32,
        .text_length = 16,
        .text_state = 32,
        .text_ascii = 48,
        .text_wide = 72,
    },
    {
        /* 3.12 */
        .state_frame = 56,     .cframe_frame = 0, .frame_code = 0,    .frame_previous = 8, .frame_owner = 70,
        .frame_instr = 56,     .code_file = 112,  .code_name = 128,   .code_table = 136,   .code_line = 68,
        .code_traceable = 176, .code_bytes = 192, .code_version = 92, .object_type = 8,    .bytes_size = 16,
        .bytes_data = 32,      .text_length = 16, .text_state = 32,   .text_ascii = 40,    .text_wide = 56,
    },
};

/* What _PyRuntime begins with from 3.13 on: a cookie, and offsets for debuggers, whose number differs by version.
 * These are the places of those that we need, in words. */
struct gp_python_places {
    uint8_t state_size, state_frame, frame_size, frame_previous, frame_code, frame_instr, frame_owner, code_size,
        code_file, code_name, code_table, code_line, code_bytes, object_size, object_type, bytes_size, bytes_data,
        text_state, text_length, text_ascii;
};

static const struct gp_python_places python_places[] = {
    {19, 23, 28, 29, 30, 31, 33, 34, 35, 37, 38, 39, 43, 44, 45, 65, 66, 68, 69, 70}, /* 3.13 */
    {22, 26, 31, 32, 33, 34, 36, 39, 40, 42, 43, 44, 48, 50, 51, 75, 76, 78, 79, 80}, /* 3.14 */
};

static bool python_offsets(struct gp_python_layout *at, uint32_t version, const uint64_t *words, const char **why)
{
    const struct gp_python_places *place = &python_places[version - GP_PYTHON_313];
    if (memcmp(words, "xdebugpy", 8) != 0 || words[1] >> 16 != version || words[2] > 1) {
        *why = "this Python does not say where its structures are (no _Py_DebugOffsets)";
        return false;
    }
    if (words[2] == 1 && version >= GP_PYTHON_314) {
        /* There a thread runs its own copy of the byte code, and strings say their kind in other bits. */
        *why = "Python frames of a free-threaded Python are read in version 3.13 only";
        return false;
    }
    *why = "this Python's _Py_DebugOffsets make no sense";
    if (words[place->state_size] > 4096 || words[place->frame_size] > GP_PYTHON_FRAME ||
        words[place->code_size] > 512 || words[place->text_ascii] > 128)
        return false;
    if (words[place->state_frame] + 8 > words[place->state_size] ||
        words[place->frame_instr] + 8 > words[place->frame_owner] ||
        words[place->frame_previous] + 8 > words[place->frame_owner] ||
        words[place->frame_code] + 8 > words[place->frame_owner] ||
        words[place->frame_owner] >= words[place->frame_size] ||
        words[place->object_type] + 8 > words[place->object_size] ||
        words[place->code_file] + 8 > words[place->code_bytes] ||
        words[place->code_name] + 8 > words[place->code_bytes] ||
        words[place->code_table] + 8 > words[place->code_bytes] ||
        words[place->code_line] + 28 > words[place->code_bytes] || words[place->code_bytes] > GP_PYTHON_CODE ||
        words[place->code_bytes] < 24 || words[place->bytes_data] > 128 || words[place->bytes_size] > 120 ||
        words[place->text_state] + 4 > words[place->text_ascii] ||
        words[place->text_length] + 8 > words[place->text_ascii])
        return false;
    *at = (struct gp_python_layout){
        .state_frame = (uint16_t)words[place->state_frame],
        .cframe_frame = GP_PYTHON_NONE,
        .frame_code = (uint16_t)words[place->frame_code],
        .frame_previous = (uint16_t)words[place->frame_previous],
        .frame_owner = (uint16_t)words[place->frame_owner],
        .frame_instr = (uint16_t)words[place->frame_instr],
        .code_file = (uint16_t)words[place->code_file],
        .code_name = (uint16_t)words[place->code_name],
        .code_table = (uint16_t)words[place->code_table],
        .code_line = (uint16_t)words[place->code_line],
        .code_bytes = (uint16_t)words[place->code_bytes],
        /* Two that the table leaves out: between _co_firsttraceable, padded to 8 bytes, and the code lies co_extra;
         * between first line and version lie five counts. */
        .code_traceable = (uint16_t)(words[place->code_bytes] - 16),
        .code_version = (uint16_t)(words[place->code_line] + 24),
        .object_type = (uint16_t)words[place->object_type],
        .bytes_size = (uint16_t)words[place->bytes_size],
        .bytes_data = (uint16_t)words[place->bytes_data],
        .text_length = (uint16_t)words[place->text_length],
        .text_state = (uint16_t)words[place->text_state],
        .text_ascii = (uint16_t)words[place->text_ascii],
        .text_wide = (uint16_t)(words[place->text_ascii] + 16),
    };
    *why = NULL;
    return true;
}

bool gp_python_layout(struct gp_python_layout *at, uint32_t version, const void *debug, const char **why)
{
    if (version < GP_PYTHON_310 || version > GP_PYTHON_314) {
        *why = version < GP_PYTHON_310 ? "Python frames are read from version 3.10 on, this one is older"
                                       : "Python frames are read up to version 3.14, this one is newer";
        return false;
    }
    if (version < GP_PYTHON_313) {
        *at = python_layouts[version - GP_PYTHON_310];
        *why = NULL;
        return true;
    }
    if (debug)
        return python_offsets(at, version, debug, why);
    *why = "this Python hides _PyRuntime, which says where its structures are";
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
        why = "this Python does not export what finding a thread's frames takes";
        python->usable = false;
    }
    if (why)
        gp_python_note_set(why);
}

/* ---- now and then ------------------------------------------------------------------------------------------------ */

static GP_COLD const struct gp_python *python_search(void)
{
    int saved = errno;
    static const uint32_t room = GP_COUNT(python_slots);
    struct gp_python_look look = {0};
    const struct gp_python *found = NULL;
    if (!gp_loader_look(python_visit, &look))
        return NULL;
    uint32_t slot;
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
        /* One thread looks; the others go without Python frames for that instant rather than wait. */
        if (time < again || !__atomic_compare_exchange_n(&x_again, &again, time + GP_PYTHON_AGAIN_NS, false,
                                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return NULL;
        python = python_search();
    }
    return python && python->usable ? python : NULL;
}
