/* SPDX-License-Identifier: MIT
 *
 * pep768.h: the way into Python 3.14, which is tried first.
 */
#ifndef GP_ATTACH_PEP768_H
#define GP_ATTACH_PEP768_H

#include <attach/attach.h>
#include <attach/facts.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct gp_pep768 { /* addresses in the process */
    uint64_t pending, path, breaker;
    size_t path_bytes;
    char why[256]; /* if it cannot be used; "" it is an older Python */
};

/* Where the interpreter, whose _PyRuntime is at `runtime`, looks for requests to its main thread.  0,
 * or -errno and why. */
int gp_pep768_find(pid_t pid, uint64_t runtime, pid_t main_tid, struct gp_pep768 *place);
/* Asks for the script at `path`.  0 or -errno. */
int gp_pep768_request(pid_t pid, const struct gp_pep768 *place, const char *path);
/* True: *outcome is the end of the attach.  False: the process is as it was; attach->note may say why. */
bool gp_attach_python(struct gp_attach *attach, const struct gp_facts *facts, enum gp_attach_outcome *outcome);

#endif
