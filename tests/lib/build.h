/* SPDX-License-Identifier: MIT
 *
 * build.h: compiles small shared objects for tests (from tests/lib/preload) into a temporary folder.
 */
#ifndef GP_TEST_LIB_BUILD_H
#define GP_TEST_LIB_BUILD_H

/* Makes a folder under /tmp. Returns its absolute path from malloc; pass it to build_remove. */
char *build_folder(void);
/* Compiles tests/lib/preload/SOURCE into FOLDER/NAME with one more compiler argument (or NULL).  0 or -errno. */
int build_shared(const char *folder, const char *source, const char *name, const char *extra);
/* Copies the file: the loader identifies libraries by file, not by contents. 0 or -errno. */
int build_copy(const char *from, const char *to);
void build_remove(char *folder);

#endif
