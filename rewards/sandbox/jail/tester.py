"""The process that runs the tests of one job and reports whether they passed."""

import ast
import builtins
import signal
from typing import Any

from .limits import JobLimits, restrain_tester
from .parsed_tests import find_program_names, find_standard_names, parse_tests
from .session import TESTS, Session
from .wire import Gone, receive, send


def run_job(limits: JobLimits, null: int, replies: int) -> None:
    """Read one job from standard input, run it and write the verdict to `replies`: the fields of a
    `JobVerdict`; or `failure`, if the sandbox does not work. `null` becomes the candidate's
    standard error."""
    try:
        session = Session(limits, null)
        restrain_tester(limits)
    except (Gone, Exception) as error:
        receive(0)  # or the next tester would find the job
        return send(replies, {"failure": f"no candidate could be started: {error}"})
    job = receive(0)
    session.start_clock()
    verdict = _judge(session, job)
    signal.setitimer(signal.ITIMER_REAL, 0)
    send(replies, verdict)


def _judge(session: Session, job: dict[str, Any]) -> dict[str, Any]:
    reason = printed = broken = ""
    try:
        trees = parse_tests(job["setup"], job["tests"], job["entry_point"])
    except ValueError as error:
        broken = str(error)
    else:
        try:
            if job["stdin"] is None:
                _run_tests(session, job, trees)
            else:
                printed, reason = session.run_script(job["setup"], job["code"], job["stdin"])
        except (Exception, Gone, SystemExit) as error:
            reason = f"{type(error).__name__}: {error}"[:300].rstrip(": ")
        # a test may have caught what was raised
        broken, reason = session.unfit, session.gone or reason
    broken = broken and f"{broken} (tests: {str(job['tests'])[:200]})"
    passed = not (reason or broken)
    return {"passed": passed, "reason": reason, "printed": printed, "broken": broken}


def _run_tests(session: Session, job: dict[str, Any], trees: list[ast.Module]) -> None:
    """Run tests until one raises."""
    names, entry = _load(session, job, trees)
    exec(compile(trees[0], "<setup>", "exec"), names)
    for test, tree in zip(job["tests"], trees[1:], strict=True):
        session.start_clock()
        if isinstance(test, dict):
            _check_call(entry, test)
        exec(compile(tree, "<test>", "exec"), names)


def _load(
    session: Session, job: dict[str, Any], trees: list[ast.Module]
) -> tuple[dict[str, Any], Any]:
    """Load the candidate: the names that the tests use, of which standard ones are the real ones,
    and the entry point."""
    session.ask({"script": False, "setup": job["setup"]})
    session.use("load", 0, job["code"])
    entry = job["entry_point"]
    names: dict[str, Any] = {"__name__": TESTS, **find_standard_names(trees, entry)}
    for name in find_program_names(trees, entry):
        try:
            names[name] = session.use("name", 0, name)
        except NameError:  # the setup may define it, or the test that uses it fails
            if hasattr(builtins, name):
                raise
    return names, _find_entry(session, entry) if entry else None


def _find_entry(session: Session, entry: str) -> Any:
    """The function of that name, else the method of a new `Solution`; `Solution.add` is a method of
    a new `Solution`."""
    owner, _, name = entry.rpartition(".")
    try:
        if not owner:
            return session.use("name", 0, name)
    except NameError:
        owner = "Solution"
    return getattr(session.use("name", 0, owner)(), name)


def _check_call(function: Any, case: dict[str, Any]) -> None:
    """Raise an AssertionError where a call does not have its result."""
    result = _plain(function(*case["input"]))
    if result not in [_plain(case[key]) for key in ("output", "also") if key in case]:
        raise AssertionError


def _plain(value: Any) -> Any:
    """JSON has no tuples, so a sequence of either kind answers for the other."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
