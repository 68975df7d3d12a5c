/* SPDX-License-Identifier: MIT
 *
 * notls.c: stands for GnuTLS in the wheel's `gpuprof` command (deploy/package.mk).
 *
 * libmicrohttpd.a refers to GnuTLS, which is called only for servers with TLS, and tools/agent/metrics/http.c
 * starts none.  The linker binds every such reference to this function.  GnuTLS's functions return
 * negative errors; libmicrohttpd ignores the result of the only call that it makes for every program,
 * gnutls_global_init.
 */
int gp_wheel_no_tls(void);
int gp_wheel_no_tls(void)
{
    return -1;
}
