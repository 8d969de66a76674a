"""A watchdog that ends a run which makes no progress, or which another process has left.

Collectives wait until their timeout, half an hour by default, and a reward that hangs is awaited
for ever. A thread in each process knows the phase (`mmrl.runtime.activity`), the time of the last
progress and the call of the main thread, and hears those of the other processes
(`mmrl.runtime.heartbeats`). The run is stalled where no process has made progress for the limit;
the processes that do not wait in a collective are the ones the others wait for.
"""

from __future__ import annotations

import faulthandler
import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from mmrl.runtime.activity import Display, current_display
from mmrl.runtime.heartbeats import SILENCE, Heartbeat, Heartbeats
from mmrl.runtime.interrupt import end_at_once
from mmrl.runtime.thread_calls import describe_calls

logger = logging.getLogger(__name__)
BEAT = 1.0
"""Seconds between two heartbeats."""

GRACE = 10.0
"""Seconds in which the main thread may end by itself after another process was lost."""

LAST_WORDS = 30.0
"""Longest wait in seconds of the first process, which may hold the store, for the others."""

RESUME = "Run again with resume_from_checkpoint=auto."
_runs = itertools.count()
_watchdog: ContextVar[Watchdog | None] = ContextVar("watchdog", default=None)


class Watchdog:
    """A thread that watches the run of the thread that entered it.

    Args:
        limit: seconds without progress of any process after which the run ends.
        heartbeats: of the processes; None for a run of one.
    """

    def __init__(self, limit: float, heartbeats: Heartbeats | None) -> None:
        self.limit, self.heartbeats = limit, heartbeats
        self.rank = 0 if heartbeats is None else heartbeats.rank
        self.lost, self.noticed = "", 0.0
        self.others: dict[int, Heartbeat] = {}
        self._display, self._thread = current_display() or Display(), threading.get_ident()
        self._closed, self._reached = threading.Event(), time.monotonic()
        self._watcher = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._watcher.start()

    def close(self, error: BaseException | None) -> None:
        """Stop watching, and tell the others how the run ended here."""
        self._closed.set()
        self._watcher.join(timeout=3 * BEAT)
        if self.heartbeats is None or self._watcher.is_alive():  # it waits for a lost store
            return
        interrupted = isinstance(error, KeyboardInterrupt)
        ended = f"{type(error).__name__}: {error}" if error and not interrupted else "done"
        with suppress(RuntimeError):  # of a store that has ended: nobody listens
            self.heartbeats.send(Heartbeat(0.0, "", "", ended=ended))
            until = time.monotonic() + (3 * BEAT if error else LAST_WORDS)
            while self.rank == 0 and time.monotonic() < until:
                if all(other.ended for other in self.heartbeats.receive().values()):
                    break
                time.sleep(BEAT / 5)

    def observe(self) -> Heartbeat:
        """This process now; its calls only where it makes no progress.

        Reading the calls of threads that run has crashed Python 3.11: a thread that C++ starts is
        in the list of threads before it is complete. A process that hangs starts none.
        """
        idle, calls, waits = self._display.idle, "", False
        if self.lost or idle > self.limit / 2:
            calls, waits = describe_calls(self._thread)
        phase = ", ".join(map(str, list(self._display.stack)))
        return Heartbeat(idle, phase or "between two phases", calls, waits)

    def _watch(self) -> None:
        while not self._closed.wait(min(BEAT, self.limit / 4)):
            own = self.observe()
            verdict = self._exchange(own) or self._find_stall(own)
            if self.lost and time.monotonic() - self.noticed > GRACE:
                verdict = f"{self.lost}. This is rank {self.rank}, in {_state(own)}. {RESUME}"
            if verdict and not self._closed.is_set():
                self._end(verdict)

    def _exchange(self, own: Heartbeat) -> str:
        """Tell the others about this process and hear of them; why the run ends, if they know."""
        if self.heartbeats is None:
            return ""
        verdict = ""
        self.find_lost()  # at once, also where the store does not answer
        try:
            self.heartbeats.send(own)
            self.others = self.heartbeats.receive()
            verdict, self._reached = self.heartbeats.verdict(), time.monotonic()
        except RuntimeError as error:  # also the errors of the store
            done = any(other.ended == "done" for other in self.others.values())
            if not done and time.monotonic() - self._reached > SILENCE:
                self._lose(f"the store of the processes does not answer ({_first_line(error)})")
        self._note_lost()
        return verdict

    def find_lost(self) -> None:
        """Note which of the processes that were heard have ended since; without the store."""
        if self.heartbeats is not None:
            self.others = {rank: self.heartbeats.check(one) for rank, one in self.others.items()}
            self._note_lost()

    def _note_lost(self) -> None:
        for rank, other in self.others.items():
            if other.ended not in ("", "done"):
                self._lose(f"rank {rank} has ended: {other.ended}; it was in '{other.phase}'")

    def _lose(self, reason: str) -> None:
        """Note that another process has left; the main thread usually finds out by itself."""
        if not self.lost:
            self.lost, self.noticed = reason, time.monotonic()

    def _find_stall(self, own: Heartbeat) -> str:
        """Why the run has stalled; empty where it has not."""
        running = {self.rank: own, **{r: o for r, o in self.others.items() if not o.ended}}
        if min(one.idle for one in running.values()) < self.limit:
            return ""
        verdict = describe_stall(running, self.limit)
        if self.heartbeats is not None:
            with suppress(RuntimeError):
                return self.heartbeats.agree(verdict)
        return verdict

    def _end(self, verdict: str) -> None:
        os.write(2, f"\nerror: {verdict}\n".encode())  # not through a stream that may be held
        faulthandler.dump_traceback(sys.__stderr__ or 2, all_threads=True)
        log = threading.Thread(target=logger.error, args=("%s", verdict), daemon=True)
        log.start()
        log.join(timeout=5)
        if self.heartbeats is not None:
            time.sleep(3 * BEAT)  # the others must read the verdict before a launcher ends them
        end_at_once(1)


def describe_stall(running: Mapping[int, Heartbeat], limit: float) -> str:
    """Say which processes hang, where, and which wait for them."""
    hang = {rank: one for rank, one in running.items() if not one.waits} or running
    said = [
        f"rank {rank} has made no progress for {one.idle:.0f} s in {_state(one)}"
        for rank, one in sorted(hang.items())
    ]
    said += [
        f"rank {rank} waits for it in {_state(one)}"
        for rank, one in sorted(running.items())
        if rank not in hang
    ]
    return (
        f"{'. '.join(said)}. The limit is ddp_timeout={limit:g} seconds; raise it if that call only"
        f" needs longer. {RESUME}"
    )


@contextmanager
def watch_run(limit: float) -> Iterator[None]:
    """Watch a run inside the context; all processes of a launch open it alike.

    Args:
        limit: seconds without progress of any process after which the run ends.
    """
    from torch.distributed import distributed_c10d

    heartbeats, run = None, next(_runs)
    if distributed_c10d.is_initialized():
        # another connection: a call of another thread may wait in the shared one
        shared = distributed_c10d._get_default_store().clone()
        store = distributed_c10d.PrefixStore(f"mmrl/{run}", shared)
        rank, world_size = distributed_c10d.get_rank(), distributed_c10d.get_world_size()
        heartbeats = Heartbeats(store, rank, world_size) if world_size > 1 else None
    watchdog = Watchdog(limit, heartbeats)
    watchdog.start()
    token = _watchdog.set(watchdog)
    try:
        yield
    except BaseException as error:
        watchdog.close(error)
        raise
    else:
        watchdog.close(None)
    finally:
        _watchdog.reset(token)


def lost_process() -> str:
    """Which process of this run was lost, as far as its watchdog knows; waits for some beats."""
    watchdog = _watchdog.get()
    if watchdog is None or watchdog.heartbeats is None:
        return ""
    until = time.monotonic() + 10 * BEAT  # on a busy machine a beat may come late
    watchdog.find_lost()
    while not watchdog.lost and time.monotonic() < until:
        time.sleep(BEAT / 10)
        watchdog.find_lost()
    return watchdog.lost


def _state(one: Heartbeat) -> str:
    return f"'{one.phase}'" + (f", at {one.calls}" if one.calls else "")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no reason given"])[0][:160]
