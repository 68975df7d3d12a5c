/* SPDX-License-Identifier: MIT
 * files.h: runs a fuzz target's files without a fuzzer: replay(path) gives it a file, or every file below a folder, and
 * counts in `inputs`.  Included by one .c file each, after LLVMFuzzerTestOneInput is declared. */
#ifndef TESTS_FUZZ_FILES_H
#define TESTS_FUZZ_FILES_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static uint64_t inputs;

static void replay(const char *path)
{
    struct stat st;
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
    FILE *file = fopen(path, "r");
    if (!file || fstat(fileno(file), &st) != 0) {
        perror(path);
        exit(1);
    }
    uint8_t *data = malloc((size_t)st.st_size + 1);
    size_t n = fread(data, 1, (size_t)st.st_size, file);
    fclose(file);
    LLVMFuzzerTestOneInput(data, n);
    free(data);
    inputs++;
}

#endif
