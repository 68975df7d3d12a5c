/* SPDX-License-Identifier: MIT
 * What all stand-ins share: objects behind handles, the device, and the report of what was assumed. */
#define _GNU_SOURCE
#include "standin.h"

#include "report.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* ---- objects ----------------------------------------------------------------------------------------------------- */

#define STANDIN_MAGIC 0x6770737464696e31ull

struct standin_value {
    struct standin_value *next;
    long key;
    size_t size;
    enum { STANDIN_BYTES, STANDIN_OBJECTS, STANDIN_DEVICE, STANDIN_PINNED } what; /* the last two: an address */
    _Alignas(16) char bytes[];
};
struct standin_object {
    uint64_t magic;
    int references, type;
    struct standin_value *values;
};

struct standin_object *standin_new(int type)
{
    struct standin_object *object = calloc(1, sizeof *object);
    if (object)
        *object = (struct standin_object){.magic = STANDIN_MAGIC, .references = 1, .type = type};
    return object;
}

bool standin_create(word pointer)
{
    struct standin_object *object = standin_new(0);
    if (object)
        *(struct standin_object **)pointer = object;
    return object != NULL;
}

struct standin_object *standin_object(word handle)
{
    struct standin_object *object = (struct standin_object *)handle;
    if (handle < 4096 || handle % sizeof(void *) || object->magic != STANDIN_MAGIC)
        return NULL;
    return object;
}

int standin_type(const struct standin_object *object)
{
    return object ? object->type : -1;
}

struct standin_object *standin_hold(struct standin_object *object)
{
    if (object)
        __atomic_add_fetch(&object->references, 1, __ATOMIC_RELAXED);
    return object;
}

static word standin_pinned_alloc(size_t bytes);
static void standin_pinned_free(word pointer);

static void standin_value_free(struct standin_value *value)
{
    const word *words = (const word *)value->bytes;
    if (value->what == STANDIN_DEVICE)
        standin_device_free(*words);
    else if (value->what == STANDIN_PINNED)
        standin_pinned_free(*words);
    for (size_t i = 0; value->what == STANDIN_OBJECTS && i < value->size / sizeof(word); i++)
        standin_drop(standin_object(words[i]));
    free(value);
}

void standin_drop(struct standin_object *object)
{
    if (!object || __atomic_sub_fetch(&object->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    while (object->values) {
        struct standin_value *value = object->values;
        object->values = value->next;
        standin_value_free(value);
    }
    object->magic = 0;
    free(object);
}

static bool standin_put(struct standin_object *object, long key, const void *bytes, size_t size, int what)
{
    struct standin_value *value = malloc(sizeof *value + size), **at = &object->values;
    if (!value)
        return false;
    value->key = key;
    value->size = size;
    value->what = what;
    if (size)
        memcpy(value->bytes, bytes, size);
    if (what == STANDIN_OBJECTS)
        for (size_t i = 0; i < size / sizeof(word); i++)
            standin_hold(standin_object(((const word *)value->bytes)[i]));
    while (*at && (*at)->key != key)
        at = &(*at)->next;
    struct standin_value *before = *at;
    value->next = before ? before->next : NULL;
    *at = value;
    if (before)
        standin_value_free(before);
    return true;
}

bool standin_set(struct standin_object *object, long key, const void *bytes, size_t size, bool objects)
{
    return !object || standin_put(object, key, bytes, size, objects ? STANDIN_OBJECTS : STANDIN_BYTES);
}

/* Each has a key of its own, below those of others. */
bool standin_take(struct standin_object *object, size_t bytes, bool pinned)
{
    long key = -2000;
    size_t size;
    if (!object)
        return false;
    while (standin_get(object, key, &size))
        key--;
    word pointer = pinned ? standin_pinned_alloc(bytes) : standin_device_alloc(bytes);
    if (pointer && standin_put(object, key, &pointer, sizeof pointer, pinned ? STANDIN_PINNED : STANDIN_DEVICE))
        return true;
    (pinned ? standin_pinned_free : standin_device_free)(pointer);
    return false;
}

const void *standin_get(const struct standin_object *object, long key, size_t *size)
{
    *size = 0;
    for (const struct standin_value *value = object ? object->values : NULL; value; value = value->next)
        if (value->key == key) {
            *size = value->size;
            return value->bytes;
        }
    return NULL;
}

bool standin_copy(struct standin_object *to, const struct standin_object *from)
{
    for (const struct standin_value *value = from ? from->values : NULL; value; value = value->next)
        if (value->what <= STANDIN_OBJECTS && to &&
            !standin_put(to, value->key, value->bytes, value->size, value->what))
            return false;
    return true;
}

int64_t standin_number(const struct standin_object *object, long key, int64_t otherwise)
{
    size_t size;
    const void *bytes = standin_get(object, key, &size);
    if (size >= sizeof otherwise)
        memcpy(&otherwise, bytes, sizeof otherwise);
    return otherwise;
}

bool standin_set_number(struct standin_object *object, long key, int64_t value)
{
    return standin_set(object, key, &value, sizeof value, false);
}

enum { STANDIN_KEPT = -1000, STANDIN_ARGUMENTS = 30 };

bool standin_keep(struct standin_object *object, const word *arguments)
{
    return standin_set(object, STANDIN_KEPT, arguments, STANDIN_ARGUMENTS * sizeof *arguments, false);
}

word standin_kept(const struct standin_object *object, int position)
{
    size_t size;
    const word *kept = standin_get(object, STANDIN_KEPT, &size);
    return kept ? kept[position - 1] : 0;
}

bool standin_replace(struct standin_object *object, int position, word value)
{
    word kept[STANDIN_ARGUMENTS];
    for (int i = 0; i < STANDIN_ARGUMENTS; i++)
        kept[i] = i == position - 1 ? value : standin_kept(object, i + 1);
    return standin_keep(object, kept);
}

void standin_tell(const struct standin_object *object, const char *widths, const word *arguments)
{
    for (int i = 0; widths[i]; i++) {
        word value = standin_kept(object, i + 2), to = arguments[i + 1];
        if (to && widths[i] == 'i')
            *(int *)to = (int)value;
        else if (to && widths[i] == 'l')
            *(word *)to = value;
    }
}

/* ---- the device -------------------------------------------------------------------------------------------------- */

/* CUDA's values, written here so that a table's file needs no header of the driver. */
enum {
    STANDIN_MEMORY_TYPE = 2,
    STANDIN_MEMORY_DEVICE = 2,
    STANDIN_MULTIPROCESSORS = 16,
    STANDIN_MAJOR = 75,
    STANDIN_MINOR = 76
};

struct standin_copy2d {
    size_t from_x, from_y;
    int from_type;
    const void *from_host;
    word from_device;
    void *from_array;
    size_t from_pitch, to_x, to_y;
    int to_type;
    void *to_host;
    word to_device;
    void *to_array;
    size_t to_pitch, width, height;
};

static struct {
    int (*init)(unsigned flags);
    int (*current)(void **context);
    int (*set_current)(void *context);
    int (*retain)(void **context, int device);
    int (*device)(int *device);
    int (*attribute)(int *value, int attribute, int device);
    int (*pointer)(void *value, int attribute, word pointer);
    int (*alloc)(word *pointer, size_t bytes);
    int (*release)(word pointer);
    int (*pinned)(word *pointer, size_t bytes, unsigned flags);
    int (*unpin)(word pointer);
    int (*copy)(const struct standin_copy2d *copy);
    /* The simulated driver's own: what a launch with this pointer among its parameters does. */
    void (*given)(word pointer);
} driver;

static void standin_bind(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return;
    *(void **)&driver.current = dlsym(library, "cuCtxGetCurrent");
    *(void **)&driver.set_current = dlsym(library, "cuCtxSetCurrent");
    *(void **)&driver.retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    *(void **)&driver.device = dlsym(library, "cuCtxGetDevice");
    *(void **)&driver.attribute = dlsym(library, "cuDeviceGetAttribute");
    *(void **)&driver.pointer = dlsym(library, "cuPointerGetAttribute");
    *(void **)&driver.alloc = dlsym(library, "cuMemAlloc_v2");
    *(void **)&driver.release = dlsym(library, "cuMemFree_v2");
    *(void **)&driver.pinned = dlsym(library, "cuMemHostAlloc");
    *(void **)&driver.unpin = dlsym(library, "cuMemFreeHost");
    *(void **)&driver.copy = dlsym(library, "cuMemcpy2DUnaligned_v2");
    *(void **)&driver.given = dlsym(library, "sim_memory_given");
    *(void **)&driver.init = dlsym(library, "cuInit");
}

/* A context is current afterwards, as after a call of the runtime. */
static bool standin_driver(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    void *context = NULL;
    pthread_once(&once, standin_bind);
    if (!driver.init)
        return false;
    if (driver.current(&context) == 0 && context)
        return true;
    return driver.init(0) == 0 && driver.retain(&context, 0) == 0 && driver.set_current(context) == 0;
}

static bool standin_on_device(word pointer)
{
    int type = 0;
    return standin_driver() && driver.pointer(&type, STANDIN_MEMORY_TYPE, pointer) == 0 &&
           type == STANDIN_MEMORY_DEVICE;
}

void standin_written(word pointer, size_t bytes)
{
    if (!pointer)
        return;
    if (!standin_on_device(pointer))
        memset((void *)pointer, 0, bytes);
    else if (driver.given)
        driver.given(pointer);
}

void standin_minus_one(word pointer)
{
    static const int minus_one = -1;
    if (pointer && standin_on_device(pointer))
        standin_device_copy(pointer, 0, (word)&minus_one, 0, sizeof minus_one, 1);
    else if (pointer)
        *(int *)pointer = minus_one;
}

word standin_device_alloc(size_t bytes)
{
    word pointer = 0;
    return standin_driver() && driver.alloc(&pointer, bytes) == 0 ? pointer : 0;
}

void standin_device_free(word pointer)
{
    if (pointer && standin_driver())
        driver.release(pointer);
}

static word standin_pinned_alloc(size_t bytes)
{
    word pointer = 0;
    return standin_driver() && driver.pinned(&pointer, bytes, 0) == 0 ? pointer : 0;
}

static void standin_pinned_free(word pointer)
{
    if (pointer && standin_driver())
        driver.unpin(pointer);
}

int standin_device_copy(word to, size_t to_pitch, word from, size_t from_pitch, size_t width, size_t height)
{
    enum { UNIFIED = 4 };
    struct standin_copy2d copy = {.from_type = UNIFIED,
                                  .from_device = from,
                                  .from_pitch = from_pitch,
                                  .to_type = UNIFIED,
                                  .to_device = to,
                                  .to_pitch = to_pitch,
                                  .width = width,
                                  .height = height};
    if (width == 0 || height == 0)
        return 0;
    return standin_driver() ? driver.copy(&copy) : 3;
}

int standin_capability(void)
{
    int device = 0, major = 0, minor = 0;
    if (!standin_driver() || driver.device(&device) != 0 || driver.attribute(&major, STANDIN_MAJOR, device) != 0 ||
        driver.attribute(&minor, STANDIN_MINOR, device) != 0)
        return 0;
    return 10 * major + minor;
}

int standin_multiprocessors(void)
{
    int device = 0, count = 0;
    if (!standin_driver() || driver.device(&device) != 0)
        return 0;
    return driver.attribute(&count, STANDIN_MULTIPROCESSORS, device) == 0 ? count : 0;
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

static const char *standin_library(void)
{
    static char name[64]; /* writers write the same */
    Dl_info info;
    if (!name[0] && dladdr((void *)standin_library, &info) && info.dli_fname) {
        const char *slash = strrchr(info.dli_fname, '/');
        snprintf(name, sizeof name, "%s", slash ? slash + 1 : info.dli_fname);
    }
    return name;
}

int standin_major(void)
{
    const char *number = strstr(standin_library(), ".so.");
    return number ? atoi(number + 4) : 0;
}

/* The path of the library whose place this one takes: audit.c writes it before any of this runs.  The
 * linker makes it the entry point of the file. */
char standin_real[1024] = "stand-in";

static bool standin_version_read(const char *text, int version[3])
{
    return sscanf(text, "%d.%d.%d", &version[0], &version[1], &version[2]) == 3;
}

/* SITE has a folder such as nvidia_cudnn_cu12-9.5.1.17.dist-info. */
static bool standin_version_package(const char *site, const char *name, int version[3])
{
    size_t n = strcspn(name, "._"); /* "cudnn" of "cudnn.so.9", "nvshmem" of "nvshmem_host.so.3" */
    bool found = false;
    DIR *folder = opendir(site);
    for (struct dirent *entry; folder && !found && (entry = readdir(folder));) {
        const char *rest = entry->d_name + strlen("nvidia_"), *dash = strchr(entry->d_name, '-');
        if (strncmp(entry->d_name, "nvidia_", 7) == 0 && dash && strncasecmp(rest, name, n) == 0 &&
            (rest + n == dash || strncmp(rest + n, "_cu", 3) == 0))
            found = standin_version_read(dash + 1, version);
    }
    if (folder)
        closedir(folder);
    return found;
}

/* SITE/nvidia/cudnn/lib/libcudnn.so.9, SITE/nvidia/cu13/lib/..., SITE/cusparselt/lib/... */
static bool standin_version_site(const char *name, int version[3])
{
    char site[sizeof standin_real];
    snprintf(site, sizeof site, "%s", standin_real);
    for (int up = 1; up <= 4; up++) {
        char *slash = strrchr(site, '/');
        if (!slash)
            return false;
        *slash = '\0';
        if (up >= 3 && standin_version_package(site, name, version))
            return true;
    }
    return false;
}

static int standin_versions[3]; /* [0] < 0: unknown */

static void standin_version_find(void)
{
    const char *slash = strrchr(standin_real, '/'), *number = slash ? strstr(slash, ".so.") : NULL;
    bool known = slash && strncmp(slash, "/lib", 4) == 0 &&
                 ((number && standin_version_read(number + 4, standin_versions)) ||
                  standin_version_site(slash + 4, standin_versions));
    if (!known)
        standin_versions[0] = -1;
}

int standin_version(int part, const int newest[3])
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, standin_version_find);
    return standin_versions[0] < 0 ? newest[part] : standin_versions[part];
}

int standin_property(int part, int *value, int (*version)(int part), int invalid)
{
    if (part < 0 || part > 2)
        return invalid;
    *value = version(part);
    return 0;
}

void standin_assumed(const char *text)
{
    sim_report(standin_library(), "assumed", "%s", text);
}

void standin_unsupported(const char *function)
{
    sim_report(standin_library(), "unsupported", "%s", function);
}

__attribute__((constructor)) static void standin_loaded(void)
{
    sim_report(standin_library(), "loaded", "computes nothing; results are zeros");
}
