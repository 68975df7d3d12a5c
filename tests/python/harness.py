# SPDX-License-Identifier: MIT
"""python -m harness MODULE COUNTS: runs one test module and writes "passed failed skipped" into the file COUNTS; called by run.sh."""
import sys
import unittest


def main(module, counts):
    suite = unittest.defaultTestLoader.loadTestsFromName(module)
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    bad = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    for test, reason in result.skipped:
        print(f"skipped {test.id()}: {reason}")
    broken = 1 if result.testsRun == 0 else 0  # a module without tests is a mistake
    with open(counts, "w", encoding="ascii") as file:
        print(result.testsRun - bad - len(result.skipped), bad + broken, len(result.skipped), file=file)


main(*sys.argv[1:])
