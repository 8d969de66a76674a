"""The code sandbox: four processes, none of which trusts the next.

    trainer (mmrl.rewards.sandbox.sandbox)    receives verdicts only
      zygote (zygote.py)                   enters the isolation once, forks a tester for every job
        tester (tester.py)                   reads the job and runs the tests
          candidate (candidate.py)             runs the code that a model wrote

The candidate is forked before its tester reads the job, so its memory does not contain the tests.
It receives the code and then arguments to call it with, and answers with values (transfer.py). The
tester runs the tests and compares the values itself. A candidate can therefore not print, patch or
exit its way to a verdict: to pass, it must return what the tests expect.

These files are started by path with `python -s -S` and an empty environment, and import only the
standard library; `BOOT` defines their package.
"""

BOOT = """
import importlib.util as u, sys
sys.path[:] = [p for p in sys.path if p]
s = u.spec_from_file_location("jail", sys.argv[1] + "/__init__.py",
                              submodule_search_locations=[sys.argv[1]])
m = u.module_from_spec(s); sys.modules["jail"] = m; s.loader.exec_module(m)
from jail.zygote import main
main(sys.argv[2], sys.argv[3])
"""
