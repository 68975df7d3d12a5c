/* SPDX-License-Identifier: MIT
 *
 * test_nogpu.c: on which machines there is certainly no GPU (src/inject/nogpu.c): the driver's library, its files and its
 * device are made up.
 */
#include "base/compiler.h"
#include "base/loader.h"
#include "inject/inject.h"
#include "lib/standin.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

TestSuite(nogpu, .timeout = 30);

static bool made_up, walks = true;
static const char *objects[4], *real_name, *there;
static int device_error;
static int opened = -1;

STANDIN(bool, gp_loader_look, int (*visit)(struct dl_phdr_info *info, size_t size, void *arg), void *arg)
{
    for (unsigned i = 0; walks && i < 4; i++) {
        struct dl_phdr_info info = {.dlpi_name = objects[i]};
        if (visit(&info, sizeof(info), arg))
            break;
    }
    return walks;
}

char *realpath(const char *path, char *out)
{
    cr_assert_str_eq(path, "/usr/lib/libcuda.so.1");
    return real_name ? strcpy(out, real_name) : NULL;
}

int access(const char *path, int mode)
{
    if (!made_up)
        return (int)syscall(SYS_faccessat, AT_FDCWD, path, mode);
    return there && strcmp(path, there) == 0 ? 0 : -1;
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    int mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    if (!made_up || strcmp(path, "/dev/nvidiactl") != 0)
        return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    cr_expect_eq(flags, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    errno = device_error;
    return opened = device_error ? -1 : (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0);
}

/* A machine with NVIDIA's library and no GPU. */
static void machine(void)
{
    made_up = walks = true;
    objects[0] = NULL;
    objects[1] = "libcuda.so.1"; /* without a folder: it is not the loader's name for it */
    objects[2] = "/usr/lib/libcuda.so.1";
    objects[3] = "/other/libcuda.so.1";
    real_name = "/usr/lib/libcuda.so.550.54.15";
    there = NULL;
    device_error = ENOENT;
}

static void with_file(const char *name, bool certain)
{
    machine();
    real_name = name;
    cr_expect_eq(gp_nogpu_is_certain(), certain, "%s", name ? name : "none");
}

Test(nogpu, libraries_of_the_driver)
{
    with_file("/usr/lib/libcuda.so.550.54.15", true);
    with_file("/usr/lib/libcuda.so.1.0", true);
    with_file("/usr/lib/libcuda.so.1.9", true);
    with_file("/usr/lib/libcuda.so.1", false);
    with_file("/usr/lib/libcuda.so.550.", false);
    with_file("/usr/lib/libcuda.so.550.x", false);
    with_file("/usr/lib/libcuda.so.550./", false);
    with_file("/usr/lib/libcuda.so.550.:", false);
    with_file("/usr/lib/libcuda.so..5", false);
    with_file("/usr/lib/libcuda.so", false);
    with_file("/usr/lib/libcuda.so.550.1/libother.so", false);
    with_file(NULL, false);
    machine();
    objects[2] = objects[3] = "/usr/lib/libcudart.so.12";
    cr_expect(!gp_nogpu_is_certain());
    machine();
    walks = false;
    cr_expect(!gp_nogpu_is_certain());
}

Test(nogpu, signs_of_a_gpu)
{
    static const char *const signs[] = {"/proc/driver/nvidia",     "/dev/dxg",   "/dev/nvmap",
                                        "/dev/nvhost-ctrl-gpu",    "/dev/nvgpu", "/dev/nvidia0",
                                        "/usr/bin/nvidia-modprobe"};
    for (unsigned i = 0; i < GP_COUNT(signs); i++) {
        machine();
        there = signs[i];
        cr_expect(!gp_nogpu_is_certain(), "%s", signs[i]);
    }
    machine();
    there = "/dev/other";
    cr_expect(gp_nogpu_is_certain());
}

Test(nogpu, the_device_of_the_driver)
{
    static const int errors[] = {ENOENT, ENXIO, ENODEV, EACCES, EIO, EBUSY};
    for (unsigned i = 0; i < GP_COUNT(errors); i++) {
        machine();
        device_error = errors[i];
        cr_expect_eq(gp_nogpu_is_certain(), i < 3, "%s", strerror(errors[i]));
    }
    machine();
    device_error = 0;
    cr_expect(!gp_nogpu_is_certain());
    cr_expect_geq(opened, 0);
    cr_expect_lt(fcntl(opened, F_GETFD), 0, "it is closed again");
}

/* A cuInit that has succeeded proves that there is one. */
Test(nogpu, it_is_refuted)
{
    machine();
    cr_expect(gp_nogpu_is_certain());
    gp_nogpu_refute();
    cr_expect(!gp_nogpu_is_certain());
}
