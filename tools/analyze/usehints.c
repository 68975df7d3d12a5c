/* SPDX-License-Identifier: MIT
 *
 * usehints.c: what names tell of the use of memory; see report.h.
 */
#include <analyze/report.h>
#include <string.h>
#include <strings.h>

static bool has(const char *text, const char *part)
{
    size_t length = strlen(part);
    for (; *text; text++) {
        if (strncasecmp(text, part, length) == 0)
            return true;
    }
    return false;
}

enum gp_use_hint gp_use_hint_of_name(const char *function, const char *file)
{
    static const struct {
        const char *part;
        bool file; /* the part is one of the file's name */
        enum gp_use_hint hint;
    } names[] = {{"torch/optim/", true, GP_HINT_OPTIMIZER},
                 {"/optimizers/", true, GP_HINT_OPTIMIZER},
                 {"torch/cuda/graphs.py", true, GP_HINT_GRAPHS},
                 {"capture_graph", false, GP_HINT_GRAPHS},
                 {"capture_model", false, GP_HINT_GRAPHS},
                 {"kv_cache", false, GP_HINT_KV_CACHE},
                 {"kvcache", false, GP_HINT_KV_CACHE},
                 {"kv_cache", true, GP_HINT_KV_CACHE},
                 {"cache_utils.py", true, GP_HINT_KV_CACHE},
                 {"workspace", false, GP_HINT_WORKSPACE},
                 {"load_weights", false, GP_HINT_WEIGHTS},
                 {"load_state_dict", false, GP_HINT_WEIGHTS},
                 {"from_pretrained", false, GP_HINT_WEIGHTS},
                 {"/model_loader/", true, GP_HINT_WEIGHTS},
                 {"cuda_graph", true, GP_HINT_GRAPHS}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (has(names[i].file ? file : function, names[i].part))
            return names[i].hint;
    }
    return GP_HINT_NONE;
}

enum gp_use_hint gp_use_hint_of_owner(const char *owner)
{
    static const char *const math[] = {"cublas", "cudnn", "cufft", "cusparse", "cusolver", "cutensor", "curand", "npp"};
    if (strcmp(owner, "nccl") == 0 || strcmp(owner, "nvshmem") == 0)
        return GP_HINT_COMMUNICATION;
    for (size_t i = 0; i < sizeof(math) / sizeof(math[0]); i++) {
        if (strcmp(owner, math[i]) == 0)
            return GP_HINT_LIBRARY;
    }
    return GP_HINT_NONE;
}
