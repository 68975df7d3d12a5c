/* SPDX-License-Identifier: MIT
 *
 * listen.c: readers of events come and go while threads allocate from our cache, against listen_oracle.h. Usage: listen
 * [seconds].
 */
#include "torture/listen_oracle.h"

int main(int argc, char **argv)
{
    return reader_main("listen", argc, argv);
}
