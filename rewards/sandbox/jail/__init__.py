"""The code sandbox: three processes beside the trainer, none of which trusts the next.

    trainer (mmrl.rewards.sandbox.sandbox)    receives verdicts only
      zygote (zygote.py)                   enters the isolation once, forks a tester for every job
        tester (tester.py)                   reads the job and runs the tests
          candidate (candidate.py)             runs the code that a model wrote

The candidate is forked before its tester reads the job, so its memory does not contain the tests.
It receives the code and then arguments to call it with, and answers with values (wire.py); it can
ask for nothing. The tester runs the tests and compares the values itself. A candidate can therefore
not print, patch or exit its way to a verdict: to pass, it must return what the tests expect.

These files are started by `BOOT` with `python -s -S` and an empty environment, and import only the
standard library.
"""

BOOT = """
import sys
sys.path[:] = [sys.argv[1], *filter(None, sys.path)]
from jail.zygote import main
del sys.path[0]
main(sys.argv[2])
"""
"""Its arguments are the folder above this one, and the limits as JSON."""
