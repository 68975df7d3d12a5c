/* SPDX-License-Identifier: MIT
 *
 * launch.h: starts a program with the library, and with the simulated GPU where that is asked for.
 */
#ifndef GP_RUN_LAUNCH_H
#define GP_RUN_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct gp_launch {       /* how `run` and `trace --` start a program */
    const char *command; /* for messages */
    char library[4096];  /* path of libgpuprof.so, set by gp_launch_prepare */
    const char *given;   /* the library that --library names; NULL: the installed one */
    const char *sim;     /* NULL: no simulated GPU; "": the default one */
    char **argv;         /* NULL-terminated; NULL: no program */
    /* The caching allocator; NULL, or a limit of -1 byte, leaves the setting of the environment. */
    const char *allocator, *conf;
    int64_t limit;
    /* Not NULL: what the child does instead of running argv; returns its exit status. */
    int (*instead)(void *data);
    void *data;
};

/* A program by its path, or one that PATH has. */
bool gp_launch_is_program(const char *name);
/* A file of Python that the kernel does not start as a program. */
bool gp_launch_is_script(const char *name);
/* The command line; of such a file a new one, with python3 in front, which is kept until this process ends. */
char **gp_launch_argv(char **argv);
/* Finds a file of the installation ("libgpuprof.so", "gpuprof/sim/libcuda.so.1") in the library
 * folders beside this program.  0; -ENOENT, and path is where the file was expected. */
int gp_launch_find(char *path, size_t path_bytes, const char *below);
/* The error of a file that gp_launch_find did not find: the folders in which it looked, and what to do. */
void gp_launch_missing(const char *command, const char *below, const char *what);
/* Finds the library and the simulator, checks the environment, and sets the variables in this
 * process's own environment, from which the program inherits them.  GP_EXIT_OK, or an exit
 * status after a message. */
int gp_launch_prepare(struct gp_launch *launch);
/* The path of the simulated libcuda.so.1, in the installation.  GP_EXIT_OK, or an exit status after a message. */
int gp_launch_driver(const char *command, char path[4096]);
/* Checks the value of --sim.  driver: as from gp_launch_driver; it knows the names of GPUs.  GP_EXIT_OK, or an exit
 * status after a message. */
int gp_launch_sim_check(const char *command, const char *spec, const char *driver);
/* Sets the environment in which a program finds the stand-ins, whatever its run paths say, and its
 * children too: LD_AUDIT, in front of what is there, and LD_BIND_NOW before glibc 2.35.  `sim` is
 * the folder of the simulated driver. Nothing is set if GPUPROF_STANDINS is 0.  A GP_EXIT_ status,
 * after a message if it is not GP_EXIT_OK. */
int gp_launch_standins(const char *command, const char *sim, const char *program);
/* Prints the GPUs that --sim=gpu=NAME takes.  An exit status. */
int gp_launch_gpus(const char *command);
#define GP_SIM_KEY 32
struct gp_sim_gpu { /* a GPU that the simulator knows by name */
    char key[GP_SIM_KEY], name[64], capability[8];
    int64_t total_bytes;
    int64_t threads; /* that it can hold */
};
/* The key of the GPU that people call `name`, as "4090" or "a100 80GB"; "" if there is none.  GP_EXIT_OK, or an exit
 * status after a message, which names the GPUs that it could be after `option` ("--gpu=") and the name. */
int gp_launch_gpu_key(const char *command, const char *option, const char *name, char key[GP_SIM_KEY]);
/* All of them, to be freed.  GP_EXIT_OK, or an exit status after a message. */
int gp_launch_gpu_table(const char *command, struct gp_sim_gpu **gpus, uint32_t *count);
/* The part of gp_launch_prepare that preloads the simulated GPU's libraries from their folder,
 * where it can do no harm, so that a program whose run path names NVIDIA's runtime or CUPTI gets
 * them. */
int gp_preload_sim(const struct gp_launch *launch, const char *folder);
/* The part of gp_launch_prepare that preloads libgpuprof-shim.so: if the options or the
 * environment ask for an allocator or for driver hooks, and where it can do no harm also
 * otherwise, so that the hooks can take over from CUPTI. */
int gp_preload_shim(const struct gp_launch *launch);
/* Whether a library may be preloaded into the program: it is for this processor and C library,
 * and no sanitizer is in it.  program: as for execvp. */
bool gp_preload_fits(const char *program);
/* Whether the program needs the runtime of a sanitizer. */
bool gp_preload_is_sanitized(const char *program);
/* The names that --allocator takes, in the order of the documentation; NULL after the last. */
const char *gp_allocator_name(unsigned index);
/* Checks settings of an allocator: the library would ignore all of them for one mistake, and the
 * program would run for hours without them.  option: where text comes from.  text may be NULL.
 * GP_EXIT_OK, or GP_EXIT_USAGE after a message. */
int gp_conf_check(const char *command, const char *option, const char *text, const char *allocator);

/* Removes what processes of the simulated GPU that did not get to their end have left behind: killed ones, and those that
 * end by _exit.  Of such that still run, nothing. */
void gp_launch_sim_end(const struct gp_launch *launch);

struct gp_child {
    pid_t pid;
    bool ended;
    int status; /* exit status as a shell gives it; valid once ended */
};

/* Starts the program as a child.  From then on gp_launch_child_wait forwards signals that this process
 * receives.  0 or -errno. */
int gp_launch_child_start(struct gp_child *child, const struct gp_launch *launch);
/* Waits at most timeout_ns for a signal: forwards it to the child, follows its stops and
 * continues, notices its end. */
void gp_launch_child_wait(struct gp_child *child, uint64_t timeout_ns);

#endif
