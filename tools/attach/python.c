/* SPDX-License-Identifier: MIT
 * python.c: the way in through Python's debugger interface. */
#include <attach/internal.h>

bool gp_python_open(struct gp_attach *attach, const struct gp_facts *facts)
{
    (void)facts;
    gp_attach_why(attach, "", "it is no Python of 3.14 or newer");
    return false;
}

enum gp_attach_outcome gp_attach_python(struct gp_attach *attach, const struct gp_facts *facts)
{
    (void)attach, (void)facts;
    return GP_ATTACH_REFUSED;
}
