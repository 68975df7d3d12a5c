/* SPDX-License-Identifier: MIT
 *
 * hooks_lookup.c: finds the driver's own functions, and answers programs that look them up with
 * dlsym or cuGetProcAddress.  A wrapper replaces a function only if the answer is, by address, that
 * function of the driver. Never loads a driver.  Keeps dlerror and errno: a program may read them
 * after a successful call.
 */
#include "base/compiler.h"
#include "base/elfnames.h"
#include "base/image.h"
#include "base/loader.h"
#include "source/internal.h"
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* In libgpuprof-shim.so: the next definition of a symbol after that library.  NULL where it is not
 * loaded. */
extern void *gpuprof_preload_next(const char *name) __attribute__((weak));

static const struct {
    const char *name;
    void *wrapper;
} gp_hooks_table[GP_HOOKS_ROWS] = {
#define GP_HOOK(_id, _name, _handler, ...) {#_name, gp_wrap_##_name},
#define GP_WRAP(_name, ...)                {#_name, gp_wrap_##_name},
#define GP_SELF(_name, ...)                {#_name, gp_wrap_##_name},
#include "source/hooks.def"
#include "source/wrap.def"
#undef GP_HOOK
#undef GP_WRAP
};

static void *x_reals[GP_HOOKS_ROWS]; /* &hooks_none: this driver has no such function */
static char hooks_none;

/* ---- the driver -------------------------------------------------------------------------------------------------- */

static void *x_dlsym; /* libc's */

/* With libgpuprof-shim.so its dlsym precedes libc's, so libc's is looked up by version. */
void *gp_hooks_symbol(void *handle, const char *name)
{
    static const char *const versions[] = {GP_HOOKS_DLSYM_VERSIONS};
    void *found = __atomic_load_n(&x_dlsym, __ATOMIC_RELAXED); /* a code address: needs no order */
    /* Not RTLD_NEXT: libc may stand before this library. */
    for (size_t i = 0; dlvsym && !found && i < GP_COUNT(versions); i++)
        found = GP_LOADER(dlvsym(RTLD_DEFAULT, "dlsym", versions[i]));
    if (!found)
        return NULL;
    __atomic_store_n(&x_dlsym, found, __ATOMIC_RELAXED);
    int saved_errno = errno;
    void *symbol = GP_LOADER(((void *(*)(void *, const char *))found)(handle, name));
    if (!symbol)
        GP_LOADER(dlerror());
    errno = saved_errno;
    return symbol;
}

/* The handle is kept: the driver stays mapped until the end, as our pointers into it do. */
static void *hooks_driver_handle(void)
{
    static void *x_handle;
    void *handle = __atomic_load_n(&x_handle, __ATOMIC_RELAXED);
    if (GP_LIKELY(handle))
        return handle;
    int saved_errno = errno;
    handle = GP_LOADER(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD));
    if (!handle)
        GP_LOADER(dlerror());
    errno = saved_errno;
    __atomic_store_n(&x_handle, handle, __ATOMIC_RELAXED);
    return handle;
}

static bool hooks_have_driver(void)
{
    return hooks_driver_handle() != NULL;
}

/* Whether the address is that of a variable of some library: variable.c. */
static bool hooks_is_variable(const void *address)
{
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    return address && dladdr1 && GP_LOADER(dladdr1(address, &info, (void **)&symbol, RTLD_DL_SYMENT)) && symbol &&
           gp_elf_is_variable(symbol);
}

void *gp_hooks_driver(const char *name)
{
    void *handle = hooks_driver_handle();
    if (GP_LIKELY(handle))
        return gp_hooks_symbol(handle, name);
    /* dlopen may fail for other reasons. */
    void *next = gpuprof_preload_next ? GP_LOADER(gpuprof_preload_next(name)) : NULL;
    return hooks_is_variable(next) ? NULL : next;
}

static GP_COLD void *hooks_real_find(enum gp_hooks_row row)
{
    bool known = hooks_have_driver(); /* read before: another thread may be loading it, so a NULL may be outdated */
    void *real = gp_hooks_driver(gp_hooks_table[row].name);
    if (known)
        __atomic_store_n(&x_reals[row], real ? real : &hooks_none, __ATOMIC_RELAXED);
    return real;
}

void *gp_hooks_real(enum gp_hooks_row row)
{
    void *real = __atomic_load_n(&x_reals[row], __ATOMIC_RELAXED); /* a code address: needs no order */
    if (GP_UNLIKELY(!real))
        return hooks_real_find(row);
    return GP_LIKELY(real != &hooks_none) ? real : NULL;
}

unsigned gp_hooks_real_count(void)
{
    unsigned count = 0;
    for (int row = 0; row < GP_HOOKS_ROWS; row++)
        count += gp_hooks_real(row) != NULL;
    return count;
}

/* ---- interposers in front of the driver -------------------------------------------------------------------------- */

static const void *hooks_object(const void *address)
{
    Dl_info info;
    return address && GP_LOADER(dladdr(address, &info)) ? info.dli_fbase : NULL;
}

/* Whether the shim's definition of a name comes first: of the first one that it still has and that the
 * program has no variable of. If there is none, that does not matter. */
static bool hooks_are_first(void *program, const void *shim)
{
    for (int row = -1; row < GP_HOOKS_ROWS; row++) {
        const char *name = row < 0 ? "cuInit" : gp_hooks_table[row].name;
        void *found = gp_variable_is_hidden(name) ? NULL : gp_hooks_symbol(program, name);
        if (found && !hooks_is_variable(found))
            return hooks_object(found) == shim;
    }
    return true;
}

static bool hooks_are_in_front(void)
{
    const void *shim = hooks_object((void *)gpuprof_preload_next), *libc = hooks_object((void *)sysconf);
    void *program = shim ? GP_LOADER(dlopen(NULL, RTLD_LAZY)) : NULL;
    if (!program) {
        if (shim)
            GP_LOADER(dlerror());
        return false;
    }
    /* A library loaded by dlopen may be global, but it follows libc in the search order, so linked
     * objects do not see it. */
    bool is_first = hooks_are_first(program, shim);
    const void *lookup = hooks_object(gp_hooks_symbol(program, "dlsym"));
    GP_LOADER(dlclose(program));
    return is_first && lookup != libc;
}

/* Libraries that come later stand behind this one, so the answer does not change. */
bool gp_hooks_present(void)
{
    enum { UNKNOWN, NO, YES };
    static uint32_t x_present;
    uint32_t present = __atomic_load_n(&x_present, __ATOMIC_RELAXED); /* publishes nothing */
    if (present == UNKNOWN) {
        present = hooks_are_in_front() ? YES : NO;
        __atomic_store_n(&x_present, present, __ATOMIC_RELAXED);
    }
    return present == YES;
}

void gp_hooks_prepare(void)
{
    static uint32_t x_prepared;
    if (__atomic_exchange_n(&x_prepared, 1, __ATOMIC_RELAXED))
        return;
    gp_hooks_real_count();
    gp_hooks_resource_prepare();
    if (gp_hooks_present())
        gp_hooks_resource_note();
}

/* CUPTI and the driver's companion libraries look the driver up too.  Their calls are not the
 * program's, and a server in front of them could call them back. */
static bool hooks_is_inside(const struct gp_image *image)
{
    static const char *const insiders[] = {"libcuda.so", "libcupti.so", "libnvidia-", "libcudadebugger", "libgpuprof"};
    for (size_t i = 0; i < GP_COUNT(insiders); i++)
        if (gp_image_is(image, insiders[i]))
            return true;
    return false;
}

static bool hooks_is_insider(const void *caller)
{
    Dl_info info;
    return GP_LOADER(dladdr(caller, &info)) && info.dli_fname &&
           hooks_is_inside(&(struct gp_image){.path = info.dli_fname});
}

bool gp_hooks_is_inner(const void *caller)
{
    return hooks_is_insider(caller);
}

/* ---- results of lookups ------------------------------------------------------------------------------------------ */

static int hooks_row_of(const char *name)
{
    for (int row = 0; row < GP_HOOKS_ROWS; row++)
        if (strcmp(gp_hooks_table[row].name, name) == 0)
            return row;
    return -1;
}

bool gp_hooks_is_missing(const char *name)
{
    int row = hooks_row_of(name);
    if (gp_foreign_call_of(name) >= 0)
        return true; /* only the next definition of it counts */
    return row >= 0 && (!hooks_have_driver() || !gp_hooks_real(row));
}

void *gp_hooks_wrap_symbol(const char *name, void *real, const void *caller)
{
    int row = hooks_row_of(name), call = gp_foreign_call_of(name);
    if (call >= 0)
        return hooks_is_insider(caller) ? real : gp_foreign_wrap(call, real);
    if (row < 0 || !hooks_have_driver() || gp_hooks_real(row) != real || hooks_is_insider(caller))
        return real;
    return gp_hooks_table[row].wrapper;
}

/* NAME, NAME_v2, NAME_ptsz, NAME_v2_ptsz are forms of NAME. */
static bool hooks_is_form(const char *row, const char *name, size_t length)
{
    if (strncmp(row, name, length) != 0)
        return false;
    row += length;
    if (row[0] == '_' && row[1] == 'v' && row[2] >= '2' && row[2] <= '9')
        row += 3;
    return *row == '\0' || strcmp(row, "_ptsz") == 0 || strcmp(row, "_ptds") == 0;
}

void *gp_hooks_wrap(const char *name, void *real)
{
    size_t length = strlen(name);
    if (!real || length < 3 || !hooks_have_driver())
        return real;
    for (int row = 0; row < GP_HOOKS_ROWS; row++)
        if (hooks_is_form(gp_hooks_table[row].name, name, length) && gp_hooks_real(row) == real)
            return gp_hooks_table[row].wrapper;
    return real;
}

/* ---- cuGetProcAddress -------------------------------------------------------------------------------------------- */

/* For both forms the driver is called first, and its status is returned.  Only a function that it
 * found may be replaced. */
uint32_t gp_wrap_cuGetProcAddress(const char *symbol, void **found, int version, uint64_t flags)
{
    uint32_t (*real)(const char *, void **, int, uint64_t) = gp_hooks_real(GP_HOOKS_cuGetProcAddress);
    if (!real)
        return GP_HOOKS_NO_DRIVER;
    uint32_t result = real(symbol, found, version, flags);
    if (result == 0 && symbol && found && *found)
        *found = gp_hooks_wrap(symbol, *found);
    return result;
}

uint32_t gp_wrap_cuGetProcAddress_v2(const char *symbol, void **found, int version, uint64_t flags, int *status)
{
    uint32_t (*real)(const char *, void **, int, uint64_t, int *) = gp_hooks_real(GP_HOOKS_cuGetProcAddress_v2);
    if (!real)
        return GP_HOOKS_NO_DRIVER;
    uint32_t result = real(symbol, found, version, flags, status);
    if (result == 0 && symbol && found && *found)
        *found = gp_hooks_wrap(symbol, *found);
    return result;
}

/* ---- calls that go past the hooks -------------------------------------------------------------------------------- */

/* An object past the hooks is linked to the driver, so that its calls are the driver's; or it has libc's
 * dlsym and may have looked the driver up.  What is known of the second kind is only that. */
enum { PAST_NONE, PAST_PERHAPS, PAST_CALLS };

static char hooks_past[PAST_CALLS + 1][112]; /* each is written once, before x_past says so */
static uint32_t x_past;

struct hooks_look {
    bool is_past, is_hidden, has_dlopen, has_libc_dlsym;
};

/* A slot that was not used yet does not hold the function; it is looked at again the next time. */
static void past_slot(void *arg, const char *symbol, uint64_t *slot)
{
    struct hooks_look *look = arg;
    const void *real = NULL;
    bool is_dlsym = strcmp(symbol, "dlsym") == 0;
    if (symbol[0] == 'c' && symbol[1] == 'u') {
        int row = hooks_row_of(symbol);
        real = row < 0 ? NULL : __atomic_load_n(&x_reals[row], __ATOMIC_RELAXED);
    } else if (is_dlsym) {
        real = __atomic_load_n(&x_dlsym, __ATOMIC_RELAXED);
    }
    bool is_real = real && __atomic_load_n(slot, __ATOMIC_RELAXED) == (uint64_t)(uintptr_t)real;
    look->has_dlopen |= strcmp(symbol, "dlopen") == 0;
    look->has_libc_dlsym |= is_real && is_dlsym;
    look->is_past |= is_real && !is_dlsym;
    look->is_hidden |= is_real && !is_dlsym && gp_variable_is_hidden(symbol);
}

static void past_say(uint32_t how, const char *name, bool is_hidden)
{
    if (how == PAST_CALLS && is_hidden)
        snprintf(hooks_past[how], sizeof(hooks_past[how]),
                 "driver hooks do not see calls of %.32s: another library has variables of their names", name);
    else if (how == PAST_CALLS)
        snprintf(hooks_past[how], sizeof(hooks_past[how]),
                 "driver hooks do not see the calls of %.40s (opened with RTLD_DEEPBIND?)", name);
    else
        snprintf(hooks_past[how], sizeof(hooks_past[how]),
                 "driver hooks do not see calls of %.30s to the driver, if it makes any (RTLD_DEEPBIND)", name);
}

static int past_visit(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct gp_image image;
    struct hooks_look look = {0};
    uint32_t *found = arg;
    (void)size;
    if (!gp_image_read(&image, info) || hooks_is_inside(&image))
        return 0;
    gp_image_slots(&image, past_slot, &look);
    bool is_runtime = gp_image_is(&image, "libcudart");
    uint32_t how = look.is_past || (look.has_libc_dlsym && is_runtime) ? PAST_CALLS
                   : look.has_libc_dlsym && look.has_dlopen            ? PAST_PERHAPS
                                                                       : PAST_NONE;
    if (how > *found) {
        past_say(how, gp_image_name(&image), look.is_hidden);
        *found = how;
    }
    return *found == PAST_CALLS;
}

/* Poll thread only. */
void gp_hooks_look(void)
{
    uint32_t found = __atomic_load_n(&x_past, __ATOMIC_RELAXED), before = found;
    if (found == PAST_CALLS || !gp_hooks_present() || !hooks_have_driver())
        return;
    gp_loader_look(past_visit, &found);
    if (found != before)
        __atomic_store_n(&x_past, found, __ATOMIC_RELEASE); /* [past.R] release: the text; pairs with [past.A] */
}

bool gp_hooks_past(char *text, size_t bytes)
{
    uint32_t found = __atomic_load_n(&x_past, __ATOMIC_ACQUIRE); /* [past.A] acquire: pairs with [past.R] */
    if (!found)
        return false;
    snprintf(text, bytes, "%s", hooks_past[found]);
    return true;
}
