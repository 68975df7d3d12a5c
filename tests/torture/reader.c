/* SPDX-License-Identifier: MIT
 *
 * reader.c: readers of events come and go while frameworks allocate, against reader_oracle.h. Usage: reader [seconds].
 */
#include "torture/reader_oracle.h"

int main(int argc, char **argv)
{
    return reader_main("reader", argc, argv);
}
