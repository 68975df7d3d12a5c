/* SPDX-License-Identifier: MIT
 *
 * Legacy IPC between a parent and a child that forked before either used CUDA.  The parent owns the
 * bytes; in the child they are imported, once, however often the handle is opened. Leaves 4 MiB
 * linear in the parent; 4 MiB imported and 1 MiB linear in the child.  Two processes hold.
 */
#include <cuda.h>
#include <sys/wait.h>

#include "finish.h"

static int child_main(int in, int out)
{
    CUipcMemHandle handle;
    CUdeviceptr first = 0, again = 0;
    int code;
    if (read(in, &handle, sizeof(handle)) != (ssize_t)sizeof(handle))
        return 1;
    program_start();
    CHECK(cuIpcOpenMemHandle(&first, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK(cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK(cuIpcCloseMemHandle(again));
    program_alloc(MIB);
    printf("child: opened twice: %d\n", first != 0 && first == again);
    fflush(stdout);
    if (write(out, "c", 1) != 1)
        return 1;
    code = finish();
    close(out);
    return code;
}

int main(void)
{
    CUipcMemHandle handle;
    CUdeviceptr owned, spare;
    int to_child[2], to_parent[2], status = 0, code;
    char byte;
    pid_t child;
    if (pipe(to_child) != 0 || pipe(to_parent) != 0 || (child = fork()) < 0)
        return 1;
    if (child == 0) {
        close(to_child[1]);
        close(to_parent[0]);
        exit(child_main(to_child[0], to_parent[1]));
    }
    close(to_child[0]);
    close(to_parent[1]);
    program_start();
    owned = program_alloc(4 * MIB);
    spare = program_alloc(2 * MIB);
    memset(&handle, 0, sizeof(handle));
    CHECK(cuIpcGetMemHandle(&handle, owned));
    CHECK(cuMemFree(spare));
    if (write(to_child[1], &handle, sizeof(handle)) != (ssize_t)sizeof(handle))
        return 1;
    program_failures += read(to_parent[0], &byte, 1) != 1; /* the child has opened it */
    code = finish();
    waitpid(child, &status, 0);
    printf("child: %d\n", WEXITSTATUS(status));
    return code;
}
