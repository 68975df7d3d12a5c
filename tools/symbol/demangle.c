/* SPDX-License-Identifier: MIT
 *
 * demangle.c: names as in the source (internal.h). Calls libiberty's demanglers with a callback: a
 * name of 200 bytes can expand to 2^100 bytes of text, so the callback leaves by longjmp when the
 * output is full. The demanglers keep their state on the stack, so nothing leaks.
 */
#include <symbol/internal.h>

#include <libiberty/demangle.h>
#include <setjmp.h>
#include <string.h>

/* Longer mangled names are shown as they are: 8 KiB is above what template libraries reach. */
#define GP_MANGLED_MOST 8192u

struct gp_demangling {
    jmp_buf enough;
    char *out;
    size_t bytes, used;
};

static void demangle_add(const char *text, size_t length, void *context)
{
    struct gp_demangling *d = context;
    size_t room = d->bytes - 1 - d->used, take = length < room ? length : room;
    memcpy(d->out + d->used, text, take);
    d->used += take;
    if (take < length)
        longjmp(d->enough, 1);
}

static bool demangle_by(int (*demangler)(const char *, int, demangle_callbackref, void *), const char *name,
                        struct gp_demangling *d)
{
    d->used = 0;
    if (setjmp(d->enough) != 0)
        return true;
    return demangler(name, DMGL_NO_OPTS, demangle_add, d) != 0;
}

bool gp_demangle(const char *name, char *out, size_t out_bytes)
{
    struct gp_demangling d = {.out = out, .bytes = out_bytes};
    bool rust = strncmp(name, "_R", 2) == 0, itanium = strncmp(name, "_Z", 2) == 0;
    if ((!rust && !itanium) || out_bytes < 2 || strnlen(name, GP_MANGLED_MOST) == GP_MANGLED_MOST)
        return false;
    /* Old Rust names are Itanium names that end with a hash: the Rust demangler accepts them and
     * rejects C++ names. */
    if (!demangle_by(rust_demangle_callback, name, &d) &&
        (!itanium || !demangle_by(cplus_demangle_v3_callback, name, &d)))
        return false;
    out[d.used] = '\0';
    return d.used > 0;
}
