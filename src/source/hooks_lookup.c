/* SPDX-License-Identifier: MIT
 *
 * hooks_lookup.c: answers programs that look the driver's functions up with dlsym or
 * cuGetProcAddress.  A wrapper replaces a function only if the answer is, by address, that function
 * of the driver (real.c).
 */
#include "source/internal.h"
#include <string.h>

static void *const lookup_wrappers[GP_HOOKS_ROWS] = {
#define GP_HOOK(_id, _name, _handler, ...) gp_wrap_##_name,
#define GP_WRAP(_name, ...)                gp_wrap_##_name,
#define GP_SELF(_name, ...)                gp_wrap_##_name,
#include "source/hooks.def"
#include "source/wrap.def"
#undef GP_HOOK
#undef GP_WRAP
};

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

/* ---- results of lookups ------------------------------------------------------------------------------------------ */

bool gp_hooks_is_missing(const char *name)
{
    int row = gp_hooks_row_of(name);
    if (gp_foreign_call_of(name) >= 0)
        return true; /* only the next definition of it counts */
    return row >= 0 && (!gp_hooks_have_driver() || !gp_hooks_real(row));
}

void *gp_hooks_wrap_symbol(const char *name, void *real, const void *caller)
{
    int row = gp_hooks_row_of(name), call = gp_foreign_call_of(name);
    if (call >= 0)
        return gp_hooks_is_inner(caller) ? real : gp_foreign_wrap(call, real);
    if (row < 0 || !gp_hooks_have_driver() || gp_hooks_real(row) != real || gp_hooks_is_inner(caller))
        return real;
    return lookup_wrappers[row];
}

/* NAME, NAME_v2, NAME_ptsz, NAME_v2_ptsz are forms of NAME. */
static bool lookup_is_form(const char *row, const char *name, size_t length)
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
    if (!real || length < 3 || !gp_hooks_have_driver())
        return real;
    for (int row = 0; row < GP_HOOKS_ROWS; row++)
        if (lookup_is_form(gp_hooks_name(row), name, length) && gp_hooks_real(row) == real)
            return lookup_wrappers[row];
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
