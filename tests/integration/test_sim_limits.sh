#!/bin/sh
# SPDX-License-Identifier: MIT
# Programs whose circumstances are narrow start on the simulated GPU: with a library that has its thread-local storage
# beside the thread (as jemalloc), with ThreadSanitizer, with small stacks of threads, and under a limit of the size of files.
#   test_sim_limits.sh BUILD
# Run: script
set -u
build=$(cd "${1:?usage: test_sim_limits.sh BUILD}" && pwd)
gpuprof=$build/bin/gpuprof train=$build/examples/train_rt
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
passed=0 failed=0

check() { # WHAT STATUS
    if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED  $1" && tail -3 out; fi
}

cat >tls.c <<'END'
__attribute__((tls_model("initial-exec"))) __thread char room[4096];
char *tls_room(void) { return room; }
END
cat >stack.c <<'END'
#include <pthread.h>
static void *body(void *argument) { return argument; }
int main(void)
{
    pthread_attr_t small;
    pthread_t thread;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 32768);
    return pthread_create(&thread, &small, body, 0) || pthread_join(thread, 0);
}
END
echo 'int main(void) { return 0; }' >main.c
cc -shared -fPIC -o libtls.so tls.c && cc -o stack stack.c -lpthread || exit 1
LD_PRELOAD=$work/libtls.so "$gpuprof" run --sim -- "$train" --steps 2 --pace 0 >out 2>&1
check "4 KiB of thread-local storage in a preloaded library" $?
"$gpuprof" run --sim -- ./stack >out 2>&1
check "a thread with a stack of 32 KiB" $?
GLIBC_TUNABLES=glibc.malloc.tcache_count=3 "$gpuprof" run --sim -- sh -c 'echo $GLIBC_TUNABLES' >out 2>&1
grep -q '^glibc.malloc.tcache_count=3:glibc.rtld.optional_static_tls=' out
check "tunables that the user set stay" $?
if cc -fsanitize=thread -o tsan main.c 2>/dev/null && ./tsan; then
    "$gpuprof" run --sim -- ./tsan >out 2>&1
    check "ThreadSanitizer" $?
fi
# In blocks of 512 bytes or 1 KiB: less than a page of the simulated GPU.
(ulimit -f 64 && "$gpuprof" run --sim -- "$train" --steps 3 --pace 0) >out 2>&1
check "under a limit of the size of files" $?
(ulimit -f 64 && "$gpuprof" run --sim=shared="limits-$$" -- "$train" --steps 3 --pace 0) >out 2>&1
grep -q "File too large" out
check "devices cannot be shared under it, which is said" $?

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
