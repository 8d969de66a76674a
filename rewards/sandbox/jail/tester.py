"""The process that runs the tests of one job and reports which passed."""

import ast
import signal
from typing import Any

from .lending import TESTS
from .limits import JobLimits, restrain_tester
from .runnable_tests import compile_tests, run_defined
from .session import Gone, Session
from .transfer import WireError, receive, send
from .trusted_names import (
    NotInstalled,
    find_free_names,
    find_function_under_test,
    find_standard,
    is_standard,
)

GRACE = 5.0
"""Seconds a tester may take in addition to the limits of its candidate."""


def run_job(limits: JobLimits, requests: int, replies: int) -> None:
    """Read one job, run it and write the verdict.

    Args:
        limits: of the candidate.
        requests: where the job comes from; see `mmrl.rewards.sandbox.sandbox.Job`.
        replies: where the verdict goes: `passed` (one bool per test that was run) and `reason` (of
            the first failure), or `printed` and `reason` of a script; or `broken` if the tests
            cannot be run, or `failure` if the sandbox does not work.
    """
    try:
        session = Session(limits)
        restrain_tester(limits)
    except (Gone, Exception) as error:
        # The job must be read here, or the next tester would find it.
        receive(requests)
        send(replies, {"failure": f"no candidate could be started: {error}"})
        return
    job = receive(requests)
    # Both signals end this process, whatever the candidate's values make the tests do.
    rounds = 1 + len(job["tests"])
    signal.setitimer(signal.ITIMER_REAL, limits.timeout * rounds + GRACE)
    signal.setitimer(signal.ITIMER_PROF, limits.cpu_seconds + GRACE)
    verdict = _script(session, job) if job["kind"] == "script" else _tests(session, job)
    session.close()
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.setitimer(signal.ITIMER_PROF, 0)
    send(replies, verdict)


def _script(session: Session, job: dict[str, Any]) -> dict[str, Any]:
    try:
        compile_tests(job["setup"], (), "")
        printed, reason = session.run_script(job["setup"], job["code"], job["stdin"])
    except WireError as error:
        return {"printed": "", "reason": str(error)}
    except ValueError as error:
        return {"broken": str(error)}
    return {"printed": printed, "reason": reason}


def _tests(session: Session, job: dict[str, Any]) -> dict[str, Any]:
    try:
        setup, tests = compile_tests(job["setup"], job["tests"], job["entry_point"])
    except ValueError as error:
        return {"broken": str(error)}
    try:
        names = _environment(session, job, [setup, *(tree for tree, _ in tests)])
        exec(compile(setup, "<setup>", "exec"), names)
    except NotInstalled as error:
        return {"broken": str(error)}
    except (Exception, Gone) as error:
        return {"passed": [False], "reason": f"before the tests: {_words(error)}"}
    return _verdict(session, names, [code for _, code in tests], job["stop"])


def _environment(session: Session, job: dict[str, Any], trees: list[ast.Module]) -> dict[str, Any]:
    """Load the candidate and collect the names that the tests use; standard ones are the real
    ones."""
    session.start_test()
    entry = job["entry_point"] or find_function_under_test(trees)
    session.ask("load", script=False, code=job["code"], setup=job["setup"])
    names: dict[str, Any] = {"__name__": TESTS, "_plain": _plain, "_run": run_defined}
    if job["entry_point"]:
        names["_function"] = _find_entry(session, entry)
    for name in find_free_names(trees):
        if name == entry:
            names[name] = session.ask("name", name=name)
        elif is_standard(name):
            names[name] = find_standard(name)
        else:
            try:
                names[name] = session.ask("name", name=name)
            except NameError:
                # The test that uses it fails, and those that do not may pass.
                continue
    return names


def _find_entry(session: Session, entry: str) -> Any:
    """The function of that name, else the method of a new `Solution`; `Solution.add` is a method of
    a new `Solution`."""
    owner, _, name = entry.rpartition(".")
    try:
        if not owner:
            return session.ask("name", name=name)
    except NameError:
        owner = "Solution"
    return getattr(session.ask("name", name=owner)(), name)


def _verdict(
    session: Session, names: dict[str, Any], tests: list[Any], stop: bool
) -> dict[str, Any]:
    passed: list[bool] = []
    reason = ""
    for code, case in tests:
        session.start_test()
        try:
            exec(code, {**names, "_case": case} if case else names)
            problem = session.gone
        except (Exception, Gone, SystemExit) as error:
            problem = session.gone or _words(error)
        passed.append(not problem)
        reason = reason or problem
        if session.gone or (problem and stop):
            break
    return {"passed": passed, "reason": reason}


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300].rstrip(": ")
