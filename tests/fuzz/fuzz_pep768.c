/* SPDX-License-Identifier: MIT
 *
 * fuzz_pep768.c: looks for the place of a request in the memory of a Python 3.14 that answers anything.  The input is
 * that memory, at a fixed address of this process, so that an input can have pointers into itself.  Nothing may crash
 * or cost more than limits.h allows, and an accepted place does not wrap around.
 *
 *   clang -fsanitize=fuzzer,address,undefined ... : libFuzzer
 *   any compiler with -DGP_FUZZ_REPLAY: runs the files named as arguments, each also with every byte of it changed in
 *   four ways and cut off there.  Prints "N inputs".
 */
#include <attach/pep768.h>
#include <fuzz/limits.h>

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define AT   0x200000000000ull /* free under AddressSanitizer too */
#define ROOM (64u << 10)
#define MAIN 4242

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t accepted, refused;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char *memory;
    struct gp_pep768 place;
    if (!memory)
        memory =
            mmap((void *)AT, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (memory != (char *)AT)
        abort();
    memset(memory, 0, ROOM);
    memcpy(memory, data, size < ROOM ? size : ROOM);
    limits_begin();
    int rc = gp_pep768_find(getpid(), AT, MAIN, &place);
    limits_end(data, size);
    if (rc > 0 || !memchr(place.why, '\0', sizeof(place.why)))
        abort();
    if (!rc && (place.path_bytes > 4096 || !place.path || place.pending > UINT64_MAX - 4 ||
                place.path > UINT64_MAX - place.path_bytes))
        abort();
    accepted += !rc;
    refused += rc != 0;
    return 0;
}

#ifdef GP_FUZZ_REPLAY
#include "fuzz/files.h"

int main(int argc, char **argv)
{
    return replay_all(argc, argv, NULL, &accepted, &refused);
}
#endif
