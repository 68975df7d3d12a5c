/* SPDX-License-Identifier: MIT
 *
 * tls.c: a library that needs TLS_BYTES of static thread-local storage, for the test that exhausts it. The test
 * builds it several times under different names, because the loader loads a file once.
 */
#ifndef TLS_BYTES
#define TLS_BYTES 256
#endif

static __thread char room[TLS_BYTES] __attribute__((tls_model("initial-exec")));

char *tls_room(void);
char *tls_room(void)
{
    return room;
}
