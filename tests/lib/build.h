/* SPDX-License-Identifier: MIT
 *
 * build.h: small shared objects that tests compile for themselves (tests/lib/preload), in a folder of their own that is
 * removed at the end.
 */
#ifndef GP_TEST_LIB_BUILD_H
#define GP_TEST_LIB_BUILD_H

/* A fresh folder under /tmp, absolute; from malloc: give it to build_remove. */
char *build_folder(void);
/* Compiles tests/lib/preload/SOURCE into FOLDER/NAME with one more compiler argument (or NULL).  0 or -errno. */
int build_shared(const char *folder, const char *source, const char *name, const char *extra);
/* Another file with the same contents (the loader tells libraries apart by file).  0 or -errno. */
int build_copy(const char *from, const char *to);
void build_remove(char *folder);

#endif
