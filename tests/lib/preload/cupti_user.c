/* SPDX-License-Identifier: MIT
 * cupti_user.c: a library that is linked with cupti_other.c, as PyTorch is with its CUPTI. */
int cuptiOnlyInTheOther(void);
int cupti_user_ask(void);
int cupti_user_ask(void)
{
    return cuptiOnlyInTheOther();
}
