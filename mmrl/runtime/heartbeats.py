"""What each process of a run tells the others about itself, through the store of the process group.

The store (torch's `TCPStore`) is used beside the collectives, so a process can be heard while its
main thread waits in one, or hangs. A call of the store hangs, whatever its timeout, where the
process that serves it is stopped; so each is made in another thread.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from torch.distributed import Store  # pyright: ignore[reportPrivateImportUsage]

SILENCE = 40.0
"""Seconds without a heartbeat after which a process on another machine counts as lost."""

TIMEOUT = 5.0
"""Seconds that a call of the store may take."""

VERDICT = "verdict"
"""Key of why the run ends."""


@dataclass(frozen=True)
class Heartbeat:
    """A process at one moment.

    Attributes:
        idle: seconds since its last progress.
        phase: the phases it is in, the outermost first.
        calls: what its threads are in; empty where that was not read.
        waits: whether its main thread waits in a collective, and so for the others.
        ended: empty while the run goes on, `done` after it, or the error it ended with.
        pid: of the process.
        host: its machine.
    """

    idle: float
    phase: str
    calls: str
    waits: bool = False
    ended: str = ""
    pid: int = 0
    host: str = ""


class Heartbeats:
    """Heartbeats of all processes of a run.

    What asks the store raises a RuntimeError where it has ended or does not answer.

    Args:
        store: of the process group, with a prefix for the run.
        rank: this process.
        world_size: number of processes.
    """

    def __init__(self, store: Store, rank: int, world_size: int) -> None:
        store.set_timeout(timedelta(seconds=TIMEOUT))
        self.store, self.rank, self.ranks = store, rank, range(world_size)
        self.place = {"pid": os.getpid(), "host": name_machine()}
        self.heard: dict[int, tuple[bytes, float]] = {}
        self.beat, self.begun = 0, False
        self.asked: Future[Any] | None = None

    def send(self, own: Heartbeat) -> None:
        """Tell the others."""
        self.beat += 1  # so that two heartbeats are never the same text
        text = json.dumps({**asdict(own), **self.place, "n": self.beat})
        self._ask(lambda: self.store.set(str(self.rank), text))

    def receive(self) -> dict[int, Heartbeat]:
        """The last heartbeats of the others, once all have begun; one that is lost has ended."""
        keys = [str(rank) for rank in self.ranks]
        self.begun = self.begun or self._ask(lambda: self.store.check(keys))
        if not self.begun:
            return {}
        found = {}
        for rank, text in enumerate(self._ask(lambda: self.store.multi_get(keys))):
            before, since = self.heard.get(rank, (b"", 0.0))
            if text != before:
                self.heard[rank] = text, (since := time.monotonic())
            silent, values = time.monotonic() - since, json.loads(text)
            del values["n"]
            one = self.check(Heartbeat(**{**values, "idle": values["idle"] + silent}))
            if silent > SILENCE and not one.ended and one.host != self.place["host"]:
                one = replace(one, ended=f"no heartbeat from {one.host} for {silent:.0f} s")
            if rank != self.rank:
                found[rank] = one
        return found

    def check(self, one: Heartbeat) -> Heartbeat:
        """A heartbeat of another process, which has ended where it is known to be gone."""
        if one.ended or one.host != self.place["host"] or is_alive(one.pid):
            return one
        reason = f"process {one.pid} is gone; it was killed, perhaps for lack of memory"
        return replace(one, ended=reason)

    def agree(self, verdict: str) -> str:
        """Publish why the run ends, and return what the first process has published."""
        return self._ask(lambda: self.store.compare_set(VERDICT, "", verdict)).decode()

    def verdict(self) -> str:
        """Why the run ends, by the first process that knew; empty while it goes on."""
        known = self._ask(lambda: self.store.check([VERDICT]))
        return self._ask(lambda: self.store.get(VERDICT)).decode() if known else ""

    def _ask(self, call: Callable[[], Any]) -> Any:
        """What a call of the store returns, unless the last one is still without an answer.

        Raises:
            RuntimeError: no answer within `TIMEOUT` seconds, or an error of the store.
        """
        if self.asked is None or self.asked.done():
            self.asked = Future()
            threading.Thread(target=_answer, args=(self.asked, call), daemon=True).start()
            if wait([self.asked], TIMEOUT).done:
                return self.asked.result()
        raise RuntimeError(f"no answer within {TIMEOUT:g} s")


def _answer(asked: Future[Any], call: Callable[[], Any]) -> None:
    try:
        asked.set_result(call())
    except RuntimeError as error:
        asked.set_exception(error)


def name_machine() -> str:
    """This machine, and within it the container whose process numbers these are: machines and
    containers may have the same name."""
    found = [socket.gethostname()]
    with suppress(OSError):  # beside Linux
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        found += [boot[:8], os.readlink("/proc/self/ns/pid")]
    return " ".join(found)


def is_alive(pid: int) -> bool:
    """Whether a process of this machine exists and has not ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:  # of another user, as in a container
        return True
