/* SPDX-License-Identifier: MIT
 *
 * scope.c: the scopes and marks of gpuprof.h. The table of scopes belongs to session/; `gpuprof
 * scope` works on the same table.
 */
#include "account/feed/feed.h"
#include "base/compiler.h"
#include "session/internal.h"
#include "session/session.h"
#include <errno.h>
#include <gpuprof/gpuprof.h>
#include <gpuprof/wire.h>
#include <string.h>

/* Copies as much of a name as a field holds beside its NUL; a UTF-8 character is copied whole or
 * left out. */
static void api_name(char *out, size_t bytes, const char *name)
{
    size_t length = strnlen(name, bytes);
    if (length == bytes) {
        length--;
        while (length && ((unsigned char)name[length] & 0xc0) == 0x80) /* inside a character */
            length--;
    }
    memset(out, 0, bytes);
    memcpy(out, name, length);
}

GP_EXPORT int gpuprof_scope_begin(const char *name)
{
    char field[sizeof(((struct gp_wire_scope *)0)->name)];
    int saved_errno;
    if (!name || !*name)
        return -EINVAL;
    if (!gp_session_api_enter(&saved_errno))
        return -ENODEV;
    api_name(field, sizeof(field), name);
    gp_session_api_poll();
    int handle = gp_session_scope_begin(field, true);
    gp_session_api_leave(saved_errno);
    return handle == -ENOSPC ? -EBUSY : handle;
}

GP_EXPORT int gpuprof_scope_read(int scope, int device, int64_t *allocated_peak, int64_t *reserved_peak)
{
    unsigned index = device == GPUPROF_HOST ? GP_WIRE_HOST : (unsigned)device;
    struct gp_wire_scope_value peaks;
    int saved_errno;
    if (device != GPUPROF_HOST && index >= GP_WIRE_GPUS)
        return -ENODEV;
    if (!gp_session_api_enter(&saved_errno))
        return -ENODEV;
    gp_session_api_poll();
    int error = gp_session_scope_read(scope, index, &peaks);
    gp_session_api_leave(saved_errno);
    if (!error && allocated_peak)
        *allocated_peak = peaks.allocated_peak_bytes;
    if (!error && reserved_peak)
        *reserved_peak = peaks.reserved_peak_bytes;
    return error;
}

GP_EXPORT int gpuprof_scope_end(int scope)
{
    struct gp_wire_scope_value peaks[GP_WIRE_DEVICES];
    int saved_errno;
    if (!gp_session_api_enter(&saved_errno))
        return -ENODEV;
    int error = gp_session_scope_end(scope, peaks);
    gp_session_api_leave(saved_errno);
    return error;
}

GP_EXPORT int gpuprof_mark(const char *name)
{
    char field[sizeof(((struct gp_wire_event *)0)->name)];
    int saved_errno;
    if (!name || !*name)
        return -EINVAL;
    if (!gp_session_api_enter(&saved_errno))
        return -ENODEV;
    api_name(field, sizeof(field), name);
    gp_feed_event(GP_EVENT_MARK, field);
    gp_session_api_leave(saved_errno);
    return 0;
}
