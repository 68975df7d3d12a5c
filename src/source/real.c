/* SPDX-License-Identifier: MIT
 *
 * real.c: the driver's own functions and libc's dlsym, never a wrapper of ours.  Never loads a driver.  Keeps dlerror and
 * errno: a program may read them after a successful call.
 */
#include "base/compiler.h"
#include "base/elfnames.h"
#include "base/loader.h"
#include "source/internal.h"
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

/* In libgpuprof-shim.so: the next definition of a symbol after that library.  NULL where it is not
 * loaded. */
extern void *gpuprof_preload_next(const char *name) __attribute__((weak));

static const char *const real_names[GP_HOOKS_ROWS] = {
#define GP_HOOK(_id, _name, _handler, ...) #_name,
#define GP_WRAP(_name, ...)                #_name,
#define GP_SELF(_name, ...)                #_name,
#include "source/hooks.def"
#include "source/wrap.def"
#undef GP_HOOK
#undef GP_WRAP
};

void *gp_hooks_x_reals[GP_HOOKS_ROWS];
char gp_hooks_none;

const char *gp_hooks_name(enum gp_hooks_row row)
{
    return real_names[row];
}

int gp_hooks_row_of(const char *name)
{
    for (int row = 0; row < GP_HOOKS_ROWS; row++)
        if (strcmp(real_names[row], name) == 0)
            return row;
    return -1;
}

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
static void *real_handle(void)
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

bool gp_hooks_have_driver(void)
{
    return real_handle() != NULL;
}

bool gp_hooks_is_variable(const void *address)
{
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    return address && dladdr1 && GP_LOADER(dladdr1(address, &info, (void **)&symbol, RTLD_DL_SYMENT)) && symbol &&
           gp_elf_is_variable(symbol);
}

void *gp_hooks_driver(const char *name)
{
    void *handle = real_handle();
    if (GP_LIKELY(handle))
        return gp_hooks_symbol(handle, name);
    /* dlopen may fail for other reasons. */
    void *next = gpuprof_preload_next ? GP_LOADER(gpuprof_preload_next(name)) : NULL;
    return gp_hooks_is_variable(next) ? NULL : next;
}

GP_COLD void *gp_hooks_real_find(enum gp_hooks_row row)
{
    bool known = gp_hooks_have_driver(); /* read before: another thread may be loading it, so a NULL may be outdated */
    void *real = gp_hooks_driver(real_names[row]);
    if (known)
        __atomic_store_n(&gp_hooks_x_reals[row], real ? real : &gp_hooks_none, __ATOMIC_RELAXED);
    return real;
}

unsigned gp_hooks_real_count(void)
{
    unsigned count = 0;
    for (int row = 0; row < GP_HOOKS_ROWS; row++)
        count += gp_hooks_real(row) != NULL;
    return count;
}

bool gp_hooks_is_real(const char *name, const void *address)
{
    const void *real = NULL;
    if (name[0] == 'c' && name[1] == 'u') {
        int row = gp_hooks_row_of(name);
        real = row < 0 ? NULL : __atomic_load_n(&gp_hooks_x_reals[row], __ATOMIC_RELAXED);
    } else if (strcmp(name, "dlsym") == 0) {
        real = __atomic_load_n(&x_dlsym, __ATOMIC_RELAXED);
    }
    return real && real == address;
}
