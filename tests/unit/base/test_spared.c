/* SPDX-License-Identifier: MIT
 *
 * test_spared.c: the programs in which gpuprof does not start, and names that are only like theirs.
 */
#include "base/spared.h"
#include <criterion/criterion.h>

Test(spared, names)
{
    static const char *const spared[] = {
        "/usr/bin/nvidia-cuda-mps-server",
        "/usr/bin/nvidia-cuda-mps-control",
        "/usr/bin/nv-hostengine",
        "/usr/bin/nvidia-persistenced",
        "/usr/bin/nvidia-smi",
        "/usr/local/cuda/bin/cuda-gdb-python3.12-tui",
        "/usr/local/bin/cuda-checkpoint",
        "/opt/nvidia/nsight-compute/2025.3/target/linux-desktop-glibc_2_11_3-x64/ncu",
        "/opt/nvidia/nsight-systems/bin/nsys",
        "nsys-launcher",
        "/usr/local/cuda/compute-sanitizer/compute-sanitizer",
        "/usr/bin/nvidia-smi (deleted)",
        "/usr/bin/nsys (deleted)",
    };
    static const char *const others[] = {"",
                                         "/",
                                         "/usr/bin/python3.12",
                                         "/usr/bin/ncurses",
                                         "/nsys/program",
                                         "/nvidia-smi/",
                                         "/usr/bin/nsystem",
                                         "/usr/bin/ncu2",
                                         "/usr/bin/gdb"};
    for (size_t i = 0; i < sizeof(spared) / sizeof(spared[0]); i++)
        cr_expect_not_null(gp_spared(spared[i]), "%s", spared[i]);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        cr_expect_null(gp_spared(others[i]), "%s", others[i]);
}
