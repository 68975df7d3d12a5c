/* SPDX-License-Identifier: MIT
 *
 * An injected library that reports failure: does the driver go on?  (Undocumented; recorded by
 * check.py.)
 */
int InitializeInjection(void);
__attribute__((visibility("default"))) int InitializeInjection(void)
{
    return 0;
}
