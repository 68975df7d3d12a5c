/* SPDX-License-Identifier: MIT
 *
 * front.c: whether the calls of the program's libraries come to the wrappers: whether libgpuprof-shim.so is in front of
 * the driver, which libraries are the driver's and ours, and which ones call the driver past the wrappers.
 */
#include "base/image.h"
#include "base/loader.h"
#include "source/internal.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* As in real.c. */
extern void *gpuprof_preload_next(const char *name) __attribute__((weak));

/* ---- interposers in front of the driver -------------------------------------------------------------------------- */

static const void *front_object(const void *address)
{
    Dl_info info;
    return address && GP_LOADER(dladdr(address, &info)) ? info.dli_fbase : NULL;
}

/* Whether the shim's definition of a name comes first: of the first one that it still has and that the
 * program has no variable of. If there is none, that does not matter. */
static bool front_is_first(void *program, const void *shim)
{
    for (int row = -1; row < GP_HOOKS_ROWS; row++) {
        const char *name = row < 0 ? "cuInit" : gp_hooks_name(row);
        void *found = gp_variable_is_hidden(name) ? NULL : gp_hooks_symbol(program, name);
        if (found && !gp_hooks_is_variable(found))
            return front_object(found) == shim;
    }
    return true;
}

static bool front_is_ours(void)
{
    const void *shim = front_object((void *)gpuprof_preload_next), *libc = front_object((void *)sysconf);
    void *program = shim ? GP_LOADER(dlopen(NULL, RTLD_LAZY)) : NULL;
    if (!program) {
        if (shim)
            GP_LOADER(dlerror());
        return false;
    }
    /* A library loaded by dlopen may be global, but it follows libc in the search order, so linked
     * objects do not see it. */
    bool is_first = front_is_first(program, shim);
    const void *lookup = front_object(gp_hooks_symbol(program, "dlsym"));
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
        present = front_is_ours() ? YES : NO;
        __atomic_store_n(&x_present, present, __ATOMIC_RELAXED);
    }
    return present == YES;
}

/* CUPTI and the driver's companion libraries look the driver up too.  Their calls are not the
 * program's, and a server in front of them could call them back. */
static bool front_is_inside(const struct gp_image *image)
{
    static const char *const insiders[] = {"libcuda.so", "libcupti.so", "libnvidia-", "libcudadebugger", "libgpuprof"};
    for (size_t i = 0; i < GP_COUNT(insiders); i++)
        if (gp_image_is(image, insiders[i]))
            return true;
    return false;
}

bool gp_hooks_is_inner(const void *caller)
{
    Dl_info info;
    return GP_LOADER(dladdr(caller, &info)) && info.dli_fname &&
           front_is_inside(&(struct gp_image){.path = info.dli_fname});
}

/* ---- calls that go past the hooks -------------------------------------------------------------------------------- */

/* An object past the hooks is linked to the driver, so that its calls are the driver's; or it has libc's
 * dlsym and may have looked the driver up.  What is known of the second kind is only that. */
enum { PAST_NONE, PAST_PERHAPS, PAST_CALLS };

static char front_past[PAST_CALLS + 1][112]; /* each is written once, before x_past says so */
static uint32_t x_past;

struct past_look {
    bool is_past, is_hidden, has_dlopen, has_libc_dlsym;
};

/* A slot that was not used yet does not hold the function; it is looked at again the next time. */
static void past_slot(void *arg, const char *symbol, uint64_t *slot)
{
    struct past_look *look = arg;
    bool is_dlsym = strcmp(symbol, "dlsym") == 0;
    bool is_real = gp_hooks_is_real(symbol, (const void *)(uintptr_t)__atomic_load_n(slot, __ATOMIC_RELAXED));
    look->has_dlopen |= strcmp(symbol, "dlopen") == 0;
    look->has_libc_dlsym |= is_real && is_dlsym;
    look->is_past |= is_real && !is_dlsym;
    look->is_hidden |= is_real && !is_dlsym && gp_variable_is_hidden(symbol);
}

static void past_say(uint32_t how, const char *name, bool is_hidden)
{
    if (how == PAST_CALLS && is_hidden)
        snprintf(front_past[how], sizeof(front_past[how]),
                 "driver hooks do not see calls of %.32s: another library has variables of their names", name);
    else if (how == PAST_CALLS)
        snprintf(front_past[how], sizeof(front_past[how]),
                 "driver hooks do not see the calls of %.40s (opened with RTLD_DEEPBIND?)", name);
    else
        snprintf(front_past[how], sizeof(front_past[how]),
                 "driver hooks do not see calls of %.30s to the driver, if it makes any (RTLD_DEEPBIND)", name);
}

static int past_visit(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct gp_image image;
    struct past_look look = {0};
    uint32_t *found = arg;
    (void)size;
    if (!gp_image_read(&image, info) || front_is_inside(&image))
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
    if (found == PAST_CALLS || !gp_hooks_present() || !gp_hooks_have_driver())
        return;
    gp_loader_look(past_visit, &found);
    if (found == before)
        return;
    __atomic_store_n(&gp_call_x_captures, 1, __ATOMIC_RELAXED); /* an object that was found may begin one unseen */
    __atomic_store_n(&x_past, found, __ATOMIC_RELEASE);         /* [past.R] release: the text; pairs with [past.A] */
}

bool gp_hooks_past(char *text, size_t bytes)
{
    uint32_t found = __atomic_load_n(&x_past, __ATOMIC_ACQUIRE); /* [past.A] acquire: pairs with [past.R] */
    if (!found)
        return false;
    snprintf(text, bytes, "%s", front_past[found]);
    return true;
}
