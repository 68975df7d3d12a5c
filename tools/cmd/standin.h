/* SPDX-License-Identifier: MIT
 *
 * standin.h: the stand-ins for NVIDIA's mathematics libraries, which the simulated GPU needs: the
 * real ones ask the driver for tables that only NVIDIA's has.  See docs/standins.md.
 */
#ifndef GP_CMD_STANDIN_H
#define GP_CMD_STANDIN_H

/* Sets the environment in which a program finds the stand-ins, whatever its run paths say, and its
 * children too: LD_AUDIT, in front of what is there, and LD_BIND_NOW before glibc 2.35.  `sim` is the folder of the simulated driver.
 * Nothing is set if GPUPROF_STANDINS is 0.  A GP_EXIT_ status, after a message if it is not
 * GP_EXIT_OK. */
int gp_standin_environment(const char *command, const char *sim);

#endif
