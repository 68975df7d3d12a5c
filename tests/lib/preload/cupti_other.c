/* SPDX-License-Identifier: MIT
 * cupti_other.c: the libcupti of another CUDA, with a function that the simulated one lacks. */
int cuptiOnlyInTheOther(void);
int cuptiOnlyInTheOther(void)
{
    return 4711;
}
