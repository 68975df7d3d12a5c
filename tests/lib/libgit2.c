/* SPDX-License-Identifier: MIT
 *
 * libgit2.c: initializes libgit2 late. Criterion compares two values of a failed assertion with it, and initializes it at the
 * start of each test's process. There it reads the machine's CA certificates and sets up OpenSSL, which takes 10 ms of the
 * 25 ms that such a process takes (Criterion 2.4.1, libgit2 1.5). These functions come before the library's. They initialize
 * it when there is something to compare.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

/* As in git2/global.h and git2/diff.h; the callbacks and options are passed on alone. */
typedef int git_init_fn(void);
typedef int git_diff_fn(const void *old, size_t old_bytes, const char *old_name, const void *new, size_t new_bytes,
                        const char *new_name, const void *options, void *file, void *binary, void *hunk, void *line,
                        void *payload);

git_init_fn git_libgit2_init, git_libgit2_shutdown;
git_diff_fn git_diff_buffers;

int git_libgit2_init(void)
{
    return 1;
}

int git_libgit2_shutdown(void)
{
    return 0;
}

int git_diff_buffers(const void *old, size_t old_bytes, const char *old_name, const void *new, size_t new_bytes,
                     const char *new_name, const void *options, void *file, void *binary, void *hunk, void *line,
                     void *payload)
{
    git_init_fn *init = (git_init_fn *)(uintptr_t)dlsym(RTLD_NEXT, "git_libgit2_init");
    git_diff_fn *diff = (git_diff_fn *)(uintptr_t)dlsym(RTLD_NEXT, "git_diff_buffers");

    if (init == NULL || diff == NULL || init() < 0)
        return -1;
    return diff(old, old_bytes, old_name, new, new_bytes, new_name, options, file, binary, hunk, line, payload);
}
