/* SPDX-License-Identifier: MIT
 *
 * Memory of 2 MiB and more goes to another process by legacy IPC.  The importer sees the exporter's
 * block from its first byte on, also when the exporter named an address in the middle, and when the
 * block had another owner before. Leaves 39 MiB linear in the parent; the child, which does not
 * hold, has closed all.
 */
#include <cuda.h>
#include <sys/wait.h>

#include "finish.h"
#include "pattern.h"

#define BLOCKS 3
static const size_t sizes[BLOCKS] = {2 * MIB, 5 * MIB, 32 * MIB};

/* Child: reads the parent's bytes, and writes a word at the end of each block. */
static int child_main(int in, int out)
{
    CUipcMemHandle handle;
    CUdeviceptr block;
    unsigned i;
    program_start();
    for (i = 0; i < BLOCKS; i++) {
        block = 0;
        if (read(in, &handle, sizeof(handle)) != (ssize_t)sizeof(handle))
            return 1;
        CHECK(cuIpcOpenMemHandle(&block, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        printf("child: block %u: %zu wrong\n", i, pattern_wrong(block, sizes[i] - 4, 100 + i, NULL));
        CHECK(cuMemsetD32(block + sizes[i] - 4, 200 + i, 1));
        REPORT("child: free", cuMemFree(block));
        CHECK(cuIpcCloseMemHandle(block));
    }
    fflush(stdout);
    return write(out, "c", 1) != 1 || program_failures != 0;
}

static void parent_send(int out, CUdeviceptr *blocks)
{
    CUipcMemHandle handle;
    CUdeviceptr spare;
    unsigned i;
    for (i = 0; i < BLOCKS; i++) {
        spare = program_alloc(sizes[i]);
        pattern_fill(spare, sizes[i], 1, NULL);
        CHECK(cuMemFree(spare));
        blocks[i] = program_alloc(sizes[i]);
        pattern_fill(blocks[i], sizes[i], 100 + i, NULL);
        CHECK(cuStreamSynchronize(NULL));
        memset(&handle, 0, sizeof(handle));
        CHECK(cuIpcGetMemHandle(&handle, blocks[i] + (i == 1 ? MIB : 0)));
        if (write(out, &handle, sizeof(handle)) != (ssize_t)sizeof(handle))
            program_failures++;
    }
}

int main(void)
{
    CUdeviceptr blocks[BLOCKS];
    CUipcMemHandle handle;
    int to_child[2], to_parent[2], status = 0, code;
    unsigned i, word;
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
    parent_send(to_child[1], blocks);
    code = read(to_parent[0], &byte, 1) == 1 ? 0 : 1;
    waitpid(child, &status, 0);
    printf("child: %d %d\n", code, WEXITSTATUS(status));
    for (i = 0; i < BLOCKS; i++) {
        word = 0;
        CHECK(cuMemcpyDtoH(&word, blocks[i] + sizes[i] - 4, 4));
        printf("block %u: %u\n", i, word);
    }
    REPORT("handle of an unknown address", cuIpcGetMemHandle(&handle, 0x1234000));
    return finish();
}
