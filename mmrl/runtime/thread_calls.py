"""The Python calls that the threads of this process are in."""

import faulthandler
import re
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

OWN = Path(__file__).parents[2]
"""Folder of the packages."""
COLLECTIVES = "torch/distributed/"
"""Part of the path of the files whose calls wait for other processes."""
REWARD_THREAD = "reward "
"""Start of the names of the threads that call rewards."""

THREAD = re.compile(r"(?:Current thread|Thread) 0x([0-9a-f]+)")
CALL = re.compile(r'  File "(.*)", line (\d+) in (.*)')


class Call(NamedTuple):
    """A line of a traceback."""

    file: Path
    line: int
    name: str


def describe_calls(thread: int) -> tuple[str, bool]:
    """The call that a thread is in, with those of rewards.

    Args:
        thread: identifier of the main thread of a run.

    Returns:
        Text, and whether the thread waits in a collective.
    """
    stacks = read_stacks()
    stack = stacks.get(thread, [])
    said = [_describe(stack)] if stack else []
    for other in threading.enumerate():
        if other.name.startswith(REWARD_THREAD) and other.ident in stacks:
            calls = stacks[other.ident]
            if all(call.name != "_next_lots" for call in calls):  # which waits for samples
                said.append(f"thread '{other.name}': {_describe(calls)}")
    waits = any(COLLECTIVES in call.file.as_posix() for call in stack)
    return "; ".join(said), waits


def read_stacks() -> dict[int, list[Call]]:
    """The calls of every thread by its identifier, the innermost last.

    A thread that only begins or ends has none and is left out.

    `faulthandler` reads all of them at one moment. Frames from `sys._current_frames` go on running
    while they are read, and in Python 3.11 the caller of a frame that has ended may be any object.
    """
    with tempfile.TemporaryFile() as file:  # a pipe that is full would wait for its reader
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        text = file.read().decode(errors="replace")
    stacks: dict[int, list[Call]] = {}
    calls: list[Call] = []
    for line in text.splitlines():
        if thread := THREAD.match(line):
            calls = stacks[int(thread[1], 16)] = []
        elif call := CALL.fullmatch(line):
            calls.insert(0, Call(Path(call[1]), int(call[2]), call[3]))
    return {thread: calls for thread, calls in stacks.items() if calls}


def _describe(stack: list[Call]) -> str:
    """The innermost call, and the innermost of the project where that is another."""
    last = stack[-1]
    own = [call for call in stack if _is_own(call)]
    text = _name(last)
    return text if not own or own[-1] is last else f"{text}, called by {_name(own[-1])}"


def _name(call: Call) -> str:
    shown = call.file.relative_to(OWN) if _is_own(call) else Path(*call.file.parts[-2:])
    return f"{call.name} ({shown.as_posix()}:{call.line})"


def _is_own(call: Call) -> bool:
    return call.file.is_relative_to(OWN) and "site-packages" not in call.file.parts
