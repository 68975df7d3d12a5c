/* SPDX-License-Identifier: MIT
 * files.h: runs a fuzz target's files without a fuzzer: replay(path) gives it a file, or every file below a folder, and
 * counts in `inputs`; replay_all() is a whole main that also gives it each file damaged.  Included by one .c file each,
 * after LLVMFuzzerTestOneInput is declared. */
#ifndef GP_TEST_FUZZ_FILES_H
#define GP_TEST_FUZZ_FILES_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static uint64_t inputs;

static inline void input(const uint8_t *data, size_t size)
{
    /* A block of exactly this size: a sanitizer sees the first byte beyond. */
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    inputs++;
}

/* To be freed. */
static inline uint8_t *load(const char *path, size_t *size)
{
    struct stat st;
    FILE *file = fopen(path, "r");
    if (!file || fstat(fileno(file), &st) != 0) {
        perror(path);
        exit(1);
    }
    uint8_t *data = malloc((size_t)st.st_size + 1);
    *size = fread(data, 1, (size_t)st.st_size, file);
    fclose(file);
    return data;
}

static inline void replay(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        char below[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(below, sizeof(below), "%s/%s", path, entry->d_name);
        replay(below);
    }
    if (folder) {
        closedir(folder);
        return;
    }
    size_t size;
    uint8_t *data = load(path, &size);
    input(data, size);
    free(data);
}

/* Every step-th byte changed in four ways, and the file cut there. */
static inline void input_damaged(uint8_t *data, size_t size, size_t step)
{
    static const uint8_t flips[] = {0x01, 0x20, 0x80, 0xff};
    for (size_t at = 0; at < size; at += step) {
        for (size_t i = 0; i < sizeof(flips); i++) {
            data[at] ^= flips[i];
            input(data, size);
            data[at] ^= flips[i];
        }
        input(data, at);
    }
}

/* Files, each as it is and damaged; the counts are the target's.  step: NULL for every byte. */
static inline int replay_all(int argc, char **argv, size_t (*step)(const uint8_t *data, size_t size),
                             const uint64_t *accepted_count, const uint64_t *refused_count)
{
    for (int i = 1; i < argc; i++) {
        size_t size;
        uint8_t *data = load(argv[i], &size);
        input(data, size);
        input_damaged(data, size, step ? step(data, size) : 1);
        free(data);
    }
    printf("%llu inputs: %llu refused, %llu accepted\n", (unsigned long long)(*refused_count + *accepted_count),
           (unsigned long long)*refused_count, (unsigned long long)*accepted_count);
    return *accepted_count && *refused_count ? 0 : 1;
}

#endif
