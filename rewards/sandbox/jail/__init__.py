"""What runs inside the code sandbox: four processes, none of which trusts the next.

    trainer (rewards.sandbox.sandbox)      knows nothing of the candidate but its verdicts
      zygote (zygote.py)           enters the isolation once, then forks for every job
        tester (tester.py)           reads the job and runs the tests
          candidate (candidate.py) runs the code a model wrote

The candidate is forked before its tester has read the job, so the tests are nowhere in its memory.
It is given the code, and then arguments to call it with; it answers with values (transfer.py). The
tests run in the tester, which compares those values itself, so there is no verdict the candidate
could print, patch or exit its way to: to pass, it has to return what the tests ask for.

These files are started by path with `python -s -S` and an empty environment and import the standard
library only; `BOOT` gives them their package.
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
