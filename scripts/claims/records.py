"""The results of a table: one JSON object per line, appended and never changed.

`kind` is `sampler` (the best of the starting weights), `choice` (the settings of a method), `run`
(a finished run and its curve) or `test` (a reading of the test prompts). A table is made of these
lines alone; the runs may be removed.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmrl.config import ConfigError

KINDS = {
    "sampler": ("task",),
    "choice": ("task", "method"),
    "run": ("task", "method", "seed"),
    "test": ("task", "method", "seed", "sampler"),
}
"""What a line of each kind is of."""
MOST_BYTES = 64 * 2**20
"""Larger files are refused."""
Record = dict[str, Any]


class Records:
    """The lines of a file.

    Raises:
        ConfigError: a line that is unreadable, or that is of the same as an earlier one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict[tuple[str, str], Record] = {}
        if not path.is_file():
            return
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError(f"results is '{path}', with more than {MOST_BYTES} bytes.")
        for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            self._add(_read(line, f"line {n} of '{path}'"), f"line {n} of '{path}'")

    def get(self, kind: str, **of: Any) -> Record | None:
        """The line of a kind, or None."""
        return self.found.get((kind, _key(kind, of)))

    def all(self, kind: str) -> list[Record]:
        """All lines of a kind, in order."""
        return [record for (of, _), record in self.found.items() if of == kind]

    def write(self, kind: str, **values: Any) -> None:
        """Append a line.

        Raises:
            ConfigError: there is one of the same; it is never overwritten.
        """
        record = {"kind": kind, **values}
        self._add(record, "a new result")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(record, ensure_ascii=False, allow_nan=False)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text + "\n")

    def _add(self, record: Record, where: str) -> None:
        key = record["kind"], _key(record["kind"], record)
        if key in self.found:
            raise ConfigError(
                f"{where}: '{self.path}' already has {key[0]} {key[1]}. A result is written once:"
                " name another file as results, or remove the line and say so on the page."
            )
        self.found[key] = record


def _read(line: str, where: str) -> Record:
    try:
        record = json.loads(line)
        _key(record["kind"], record)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{where} is no result of a table; restore it or remove it.") from error
    return record


def _key(kind: str, of: Mapping[str, Any]) -> str:
    return json.dumps([of[name] for name in KINDS[kind]], sort_keys=True)


def machine() -> dict[str, str]:
    """Commit of the code, kind of the processor, and the GPU where there is one."""
    from mmrl.run.environment import git_commit, list_gpus

    gpus = {"gpu": ", ".join(names)} if (names := list_gpus()) else {}
    return {"commit": git_commit(), "cpu": processor(), **gpus}


def processor() -> str:
    """Model and number of the processors that this process may use."""
    info, name = Path("/proc/cpuinfo"), platform.processor() or platform.machine()
    for line in info.read_text().splitlines() if info.is_file() else ():
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    return f"{name}, {len(os.sched_getaffinity(0))} used"
