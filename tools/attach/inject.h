/* SPDX-License-Identifier: MIT
 *
 * inject.h: the way into a process by ptrace.
 */
#ifndef GP_ATTACH_INJECT_H
#define GP_ATTACH_INJECT_H

#include <attach/attach.h>
#include <attach/facts.h>

enum gp_attach_outcome gp_attach_inject(struct gp_attach *attach, const struct gp_facts *facts);
/* Opens, for writing, the memory file with that name and number of the process whose directory in /proc is
 * `proc`. The process may have put another one there: memory of others that it has. So the file must
 * be as a worker with the user `owner` has just made it: empty and without seals. -EPERM: it is not; -ENOENT: it is no
 * memory file that the process may write. A descriptor or -errno. */
int gp_attach_memory(int proc, int number, const char *file, uid_t owner);
/* Copies a file.  0 or -errno. */
int gp_attach_copy(const char *from, int to);
/* Seals a memory file against every change, because the agent arms no other one. The kernel waits a tenth of a
 * second for pages that it holds itself, for example while it moves them, and then refuses; this tries again for
 * 3 s.  0 or -errno. */
int gp_attach_seal(int fd);

#endif
