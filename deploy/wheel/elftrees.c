/* SPDX-License-Identifier: MIT
 *
 * elftrees.c: the search trees of elfutils 0.192 and newer, for the wheel's `gpuprof` command
 * (deploy/package.mk).
 *
 * libelf.a and libdw.a of Debian 13 call these functions, which are in a library of elfutils's own that
 * no package has. Their arguments are those of <search.h>, but for the tree: a structure of the caller's,
 * whose first member is the root. Older archives do not call them, and an archive that has them takes
 * precedence.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <search.h>

struct elf_tree {
    void *root; /* what follows is elfutils's lock, which stays unused */
};
typedef int elf_compare(const void *one, const void *other);

/* One lock for all trees. No comparison searches a tree. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REPLACEABLE __attribute__((weak, visibility("hidden")))
REPLACEABLE void eu_search_tree_init(struct elf_tree *tree);
REPLACEABLE void eu_search_tree_fini(struct elf_tree *tree, void (*free_node)(void *node));
REPLACEABLE void *eu_tsearch(const void *key, struct elf_tree *tree, elf_compare *compare);
REPLACEABLE void *eu_tfind(const void *key, struct elf_tree *tree, elf_compare *compare);
REPLACEABLE void *eu_tdelete(const void *key, struct elf_tree *tree, elf_compare *compare);
REPLACEABLE void eu_tdestroy(struct elf_tree *tree, void (*free_node)(void *node));

void eu_search_tree_init(struct elf_tree *tree)
{
    tree->root = NULL;
}

/* Without the lock: no thread uses a tree that is destroyed, and what frees a node may destroy another tree. */
void eu_tdestroy(struct elf_tree *tree, void (*free_node)(void *node))
{
    tdestroy(tree->root, free_node);
    tree->root = NULL;
}

void eu_search_tree_fini(struct elf_tree *tree, void (*free_node)(void *node))
{
    eu_tdestroy(tree, free_node);
}

void *eu_tsearch(const void *key, struct elf_tree *tree, elf_compare *compare)
{
    pthread_mutex_lock(&lock);
    void *node = tsearch(key, &tree->root, compare);
    pthread_mutex_unlock(&lock);
    return node;
}

void *eu_tfind(const void *key, struct elf_tree *tree, elf_compare *compare)
{
    pthread_mutex_lock(&lock);
    void *node = tfind(key, &tree->root, compare);
    pthread_mutex_unlock(&lock);
    return node;
}

void *eu_tdelete(const void *key, struct elf_tree *tree, elf_compare *compare)
{
    pthread_mutex_lock(&lock);
    void *node = tdelete(key, &tree->root, compare);
    pthread_mutex_unlock(&lock);
    return node;
}
