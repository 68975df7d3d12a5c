/* SPDX-License-Identifier: MIT
 * Shared by image.c, module.c, library.c and their entry points.  Call everything with the lock held. */
#ifndef SIM_MODULE_H
#define SIM_MODULE_H

#include "sim.h"

/* The most local memory of a thread (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"). */
#define SIM_STACK_MOST (512u << 10)

/* image.c: facts read from an image without running it. */
size_t sim_image_size(const char *image); /* 0: no image */
/* Code of many generations, packed: neither kernels nor parameters can be read. */
bool sim_image_fat(const char *image);
#define SIM_FATBIN_HEADER 16
void sim_image_fat_header(char *image, size_t size);           /* for an image of `size` bytes after the header */
bool sim_image_text(const char *image);                        /* PTX */
int sim_text_target(const char *text, int capability);         /* the generation that PTX is for; else the capability */
uint32_t sim_text_stack(const char *text, const char *kernel); /* of PTX: the kernel's own local memory; 0: none */
bool sim_image_kernel(const char *image, size_t size, const char *name);
char *sim_image_file(const char *path, size_t *size); /* malloc'ed and 0-terminated; NULL and errno */
/* Returns one variable of PTX or a cubin per call: *at starts at 0.  False: no more. */
struct sim_variable {
    char name[256];
    size_t size;
    bool managed;
};
bool sim_image_variable(const char *image, size_t size, size_t *at, struct sim_variable *variable);
/* A section of a cubin whose name begins with `prefix`, one per call as above; its name without that. */
struct sim_section {
    const char *name, *bytes;
    size_t size;
};
bool sim_image_section(const char *cubin, size_t size, const char *prefix, size_t *at, struct sim_section *section);
/* Each kernel of PTX or of a cubin, one per call as above.  PTX may name one twice. */
bool sim_image_kernel_next(const char *image, size_t size, size_t *at, char name[512]);
/* library.c: variables that the runtime knows from the program, of images that cannot be read. */
const struct sim_variable *sim_library_declared(const struct sim_library *library, size_t index);

/* layout.c: the sizes of a compiled kernel's parameters, in order; -1: not known. */
int sim_layout_find(struct sim_module *module, const char *name, uint16_t *sizes, int most);
/* Bytes of stack that each thread of a compiled kernel needs, with what it calls; 0: none, or not known. */
uint32_t sim_layout_stack_of(struct sim_module *module, const char *name);
void sim_layout_free(struct sim_module *module);
void sim_layout_setup(void); /* without the lock: calls the loader */
/* The code of a fat binary that a GPU of the capability runs, by its generation, as in 86.  `lacking`: there is none, and
 * this is the nearest.  The capability itself where the binary cannot be read. */
struct sim_generation {
    int ptx, binary;
    bool lacking;
};
struct sim_generation sim_fat_generation(const char *image, size_t size, int capability);
/* The cubin of a fat binary for that generation, or the first; malloc'ed, NULL: none, or none that can be read. */
char *sim_fat_cubin(const char *image, size_t size, int generation, size_t *out);

CUresult sim_module_load(const char *image, size_t size, struct sim_library *library, struct sim_module **out);
struct sim_module *sim_module_find(CUmodule handle);
CUresult sim_module_function(struct sim_module *module, const char *name, struct sim_function **out);
uint32_t sim_function_stack(struct sim_function *function); /* bytes of each thread; 0: none, or not known */
CUresult sim_module_variable(struct sim_module *module, const char *name, bool managed, CUdeviceptr *address,
                             size_t *size);
void sim_module_end(struct sim_module *module); /* drops the lock for the event */

struct sim_kernel {
    struct sim_kernel *next;
    struct sim_library *library;
    char *name;
};
struct sim_kernel *sim_kernel_find(CUkernel handle);
/* The kernel's function in the current context; loads the library's module there when it is not
 * yet. */
CUresult sim_kernel_function(struct sim_kernel *kernel, struct sim_function **out);

struct sim_library {
    struct sim_library *next;
    const char *image;
    char *copy; /* the image, unless the program keeps it */
    size_t size;
    struct sim_kernel *kernels;
    bool enumerated; /* `kernels` has all */
    struct sim_variable *declared;
    size_t declared_count;
};

/* library.c */
extern struct sim_library *sim_libraries;
struct sim_library *sim_library_find(CUlibrary handle);
struct sim_module *sim_library_loaded(const struct sim_library *library, const struct sim_context *context);
CUresult sim_library_module(struct sim_library *library, struct sim_module **out);
/* Code of so many bytes in the current context, once for each name. */
CUresult sim_library_stand_in(const char *name, size_t bytes);

#endif
