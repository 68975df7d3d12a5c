/* SPDX-License-Identifier: MIT
 *
 * An injected library that reports failure.  check.py records whether the driver continues, which is
 * undocumented.
 */
int InitializeInjection(void);
__attribute__((visibility("default"))) int InitializeInjection(void)
{
    return 0;
}
