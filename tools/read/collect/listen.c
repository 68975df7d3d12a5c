/* SPDX-License-Identifier: MIT
 * listen.c: see mailbox.h. */
#define _GNU_SOURCE /* F_OFD_SETLK */
#include <gpuprof/wire.h>
#include <read/collect/mailbox.h>
#include <read/collect/peer.h>

#include <base/clock.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define GP_LISTEN_FIRST_NS 1000000000ull
/* The reader's loop must not wait long: the ring fills meanwhile. */
#define GP_LISTEN_SHORT_NS 20000000ull
#define GP_LISTEN_PAUSE_NS 500000000ull

static void listen_ask(struct gp_listen *listen, uint64_t wait_ns)
{
    struct gp_wire_slot slot = {.command = GP_COMMAND_LISTEN, .device = -1};
    uint64_t now = gp_clock_ns();
    int rc = gp_mailbox_call(listen->session, &slot, now + wait_ns);
    /* Another error is an answer too: the library is older, and always writes all events. */
    listen->heard = rc != -ETIMEDOUT;
    listen->again_ns = gp_clock_ns() + GP_LISTEN_PAUSE_NS;
}

void gp_listen(struct gp_listen *listen, const struct gp_peer *session)
{
    /* The lock first: the process may look for it as soon as it has the request. A lock of the open
     * file, which other descriptors of this process do not drop. */
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = GP_LISTEN_BYTE, .l_len = 1};
    *listen = (struct gp_listen){.session = session};
    (void)fcntl(session->fd, F_OFD_SETLK, &lock);
    listen_ask(listen, GP_LISTEN_FIRST_NS);
}

void gp_listen_again(struct gp_listen *listen)
{
    if (listen->session && !listen->heard && gp_clock_ns() >= listen->again_ns)
        listen_ask(listen, GP_LISTEN_SHORT_NS);
}
