/* SPDX-License-Identifier: MIT
 *
 * fuzz_library.c: reads arbitrary ELF files as the agent does: the build id and the note of the probe.  Nothing may
 * crash, hang, leak or read out of bounds, and every result lies inside the file.
 *
 *   clang -fsanitize=fuzzer,address,undefined ... : libFuzzer
 *   any compiler with -DGP_FUZZ_REPLAY: runs the files named as arguments, each also with every byte of it changed in
 *   four ways and cut off there.  Prints "N inputs".
 */
#include <agent/find/library.h>
#include <agent/kernel/bpf.h>
#include <fuzz/limits.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t ids, probes, refused;

static int file_with(const uint8_t *data, size_t size)
{
    static int fd = -1;
    if (fd < 0)
        fd = memfd_create("library", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gp_library_id id;
    struct gp_bpf_probe probe;
    int fd = file_with(data, size);
    limits_begin();
    int error = gp_candidate_id_read(fd, &id);
    if (error > 0 || (error ? id.bytes != 0 : !id.bytes || id.bytes > GP_LIBRARY_ID))
        abort();
    if (!error && !memmem(data, size, id.id, id.bytes))
        abort();
    ids += !error;
    error = gp_bpf_probe_find(fd, &probe);
    limits_end(data, size);
    if (error > 0 || (!error && !probe.offset))
        abort();
    probes += !error;
    refused += error != 0;
    return 0;
}

#ifdef GP_FUZZ_REPLAY
#include "fuzz/files.h"

int main(int argc, char **argv)
{
    int failed = replay_all(argc, argv, NULL, &probes, &refused);
    return failed || !ids;
}
#endif
