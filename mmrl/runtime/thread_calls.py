"""The Python calls that the threads of this process are in."""

import sys
import threading
import traceback
from pathlib import Path
from types import FrameType

OWN = Path(__file__).parents[2]
"""Folder of the packages."""
COLLECTIVES = "torch/distributed/"
"""Part of the path of the files whose calls wait for other processes."""
REWARD_THREAD = "reward "
"""Start of the names of the threads that call rewards."""


def describe_calls(thread: int) -> tuple[str, bool]:
    """The call that a thread is in, with those of rewards.

    Args:
        thread: identifier of the main thread of a run.

    Returns:
        Text, and whether the thread waits in a collective.
    """
    frames = sys._current_frames()
    stack = _extract(frames.get(thread))
    said = [_describe(stack)] if stack else []
    for other in threading.enumerate():
        if other.name.startswith(REWARD_THREAD) and other.ident in frames:
            calls = _extract(frames[other.ident])
            if all(call.name != "_next_lots" for call in calls):  # which waits for samples
                said.append(f"thread '{other.name}': {_describe(calls)}")
    waits = any(COLLECTIVES in Path(call.filename).as_posix() for call in stack)
    return "; ".join(said), waits


def _extract(frame: FrameType | None) -> list[traceback.FrameSummary]:
    found = traceback.StackSummary.extract(traceback.walk_stack(frame), lookup_lines=False)
    return list(reversed(found))


def _describe(stack: list[traceback.FrameSummary]) -> str:
    """The innermost call, and the innermost of the project where that is another."""
    last = stack[-1]
    own = [call for call in stack if _is_own(call)]
    text = _name(last)
    return text if not own or own[-1] is last else f"{text}, called by {_name(own[-1])}"


def _name(call: traceback.FrameSummary) -> str:
    path = Path(call.filename)
    shown = path.relative_to(OWN) if _is_own(call) else Path(*path.parts[-2:])
    return f"{call.name} ({shown.as_posix()}:{call.lineno})"


def _is_own(call: traceback.FrameSummary) -> bool:
    path = Path(call.filename)
    return path.is_relative_to(OWN) and "site-packages" not in path.parts
