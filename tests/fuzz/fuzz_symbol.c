/* SPDX-License-Identifier: MIT
 *
 * fuzz_symbol.c: looks up addresses in arbitrary ELF files as the viewers do: symbol tables, DWARF, packed
 * sections. Nothing may crash, hang, leak or read out of bounds; names end, and a frame has a function.
 *
 *   clang -fsanitize=fuzzer,address,undefined ... : libFuzzer
 *   any compiler with -DGP_FUZZ_REPLAY: runs the files named as arguments, each also with every eleventh byte of it
 *   changed in four ways and cut off there.  Prints "N inputs".
 */
#include <fuzz/limits.h>
#include <symbol/internal.h>

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PLACES 24u /* that are looked up in a file */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t accepted, refused;
static char file_path[64];

static void remove_file(void)
{
    unlink(file_path);
}

static void file_with(const uint8_t *data, size_t size)
{
    if (!file_path[0]) {
        snprintf(file_path, sizeof(file_path), "/dev/shm/gpuprof-fuzz-%d", (int)getpid());
        atexit(remove_file);
    }
    int fd = open(file_path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    close(fd);
}

static void look_up(struct gp_object *object, uint64_t offset)
{
    struct gp_object_frame frames[GP_INLINES];
    uint32_t count = gp_object_lookup(object, offset, frames);
    if (count > GP_INLINES)
        abort();
    for (uint32_t i = 0; i < count; i++)
        if (strlen(frames[i].function) >= GP_SYMBOL_TEXT || strlen(frames[i].file) >= GP_SYMBOL_TEXT)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gp_object object;
    struct gp_intern intern = {0};
    uint64_t room = (64u << 20) + 8 * size;
    const struct gp_object_source source = {.root = "", .path = file_path, .build_id = "", .room = &room};
    file_with(data, size);
    limits_begin();
    enum gp_object_problem problem = gp_object_open(&object, &intern, &source);
    bool is_open = problem == GP_OBJECT_FINE || problem == GP_OBJECT_UNCHECKED;
    for (uint64_t i = 0; is_open && i < PLACES; i++)
        look_up(&object, size * i / PLACES + i);
    limits_end(data, size);
    if (is_open)
        gp_object_close(&object);
    gp_intern_free(&intern);
    accepted += is_open;
    refused += !is_open;
    return 0;
}

#ifdef GP_FUZZ_REPLAY
#include "fuzz/files.h"

static size_t step(const uint8_t *data, size_t size)
{
    (void)data, (void)size;
    return 11;
}

int main(int argc, char **argv)
{
    return replay_all(argc, argv, step, &accepted, &refused);
}
#endif
