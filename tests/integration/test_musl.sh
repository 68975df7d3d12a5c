#!/bin/bash
# SPDX-License-Identifier: MIT
# A preload reaches every program of a system.  One that is linked with musl starts under it, and does what it does without.
# Run: script
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "$1")
command -v musl-gcc >/dev/null || { echo "no musl-gcc: install musl-tools"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/library.c" <<'END'
const char *next(void) { return "the library's"; }
END
cat >"$work/program.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *thread(void *arg) { return dlsym(RTLD_DEFAULT, arg); }

int main(int argc, char **argv)
{
    pthread_t other;
    void *found = NULL;
    pthread_create(&other, NULL, thread, "strlen");
    pthread_join(other, &found);
    printf("default %d %d\n", found == (void *)strlen, dlsym(RTLD_DEFAULT, "no_such_function") == NULL);
    printf("message %d\n", strstr(dlerror(), "no_such_function") != NULL);
    printf("next %d\n", dlsym(RTLD_NEXT, "puts") == (void *)puts);
    printf("driver %d\n", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == NULL);
    void *library = dlopen(argv[1], RTLD_NOW);
    const char *(*name)(void) = library ? (const char *(*)(void))dlsym(library, "next") : NULL;
    printf("handle %s %d\n", name ? name() : "none", library && !dlsym(library, "cuInit"));
    fflush(stdout);
    pid_t child = fork();
    if (!child)
        _exit(strlen(getenv("HOME")) > 0 ? 5 : 6);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    printf("child %d\n", WEXITSTATUS(status));
    fprintf(stderr, "the end\n");
    return 7;
}
END
musl-gcc -shared -fPIC -o "$work/library.so" "$work/library.c" && musl-gcc -o "$work/program" "$work/program.c" || exit 1
passed=0 failed=0
try() { # WHAT COMMAND...: output, messages and exit code are those of the program alone
    local what=$1
    shift
    "$@" "$work/program" "$work/library.so" >"$work/out" 2>"$work/err" </dev/null
    echo "exit $?" >>"$work/out"
    sed -i '/^gpuprof: run: this machine has no NVIDIA driver/d' "$work/err" # of gpuprof, after a program that failed
    if cmp -s "$work/out" "$work/wanted" && cmp -s "$work/err" "$work/wanted.err"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $what"
        diff "$work/wanted" "$work/out"
        diff "$work/wanted.err" "$work/err"
    fi
}
cat >"$work/wanted" <<'END'
default 1 1
message 1
next 1
driver 1
handle the library's 1
child 5
exit 7
END
echo "the end" >"$work/wanted.err"
try "alone" env
try "preloaded" env LD_PRELOAD="$build/lib/libgpuprof-shim.so"
try "both libraries preloaded" env LD_PRELOAD="$build/lib/libgpuprof-shim.so $build/lib/libgpuprof.so"
try "gpuprof run" "$build/bin/gpuprof" run
try "gpuprof run --allocator" "$build/bin/gpuprof" run --allocator=caching
try "gpuprof run, hooks" env GPUPROF_SOURCE=hooks "$build/bin/gpuprof" run
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
