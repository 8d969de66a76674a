"""A checksum for every file of a directory, in the format of `sha256sum`.

    cd runs/quickstart/checkpoints/14 && sha256sum --check SHA256SUMS

Written with a checkpoint, and checked before a run goes on from it.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from mmrl.config import ConfigError

logger = logging.getLogger(__name__)
NAME = "SHA256SUMS"


def write_checksums(folder: Path) -> None:
    """Write the SHA-256 of all files of a directory beside them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != NAME)
    lines = [f"{_sum(path)}  {path.relative_to(folder).as_posix()}\n" for path in files]
    (folder / NAME).write_text("".join(lines))


def verify_checksums(folder: Path) -> None:
    """Check the files of a directory; one without checksums goes unchecked, which the log says.

    Raises:
        ConfigError: a file is missing or has changed.
    """
    path = folder / NAME
    if not path.is_file():
        logger.info("'%s' has no %s: its files are not checked", folder, NAME)
        return
    for line in path.read_text(errors="replace").splitlines():
        wanted, _, name = line.partition("  ")
        file = folder / name
        problem = "" if file.is_file() else "is missing"
        problem = problem or ("" if _sum(file) == wanted else f"is not what {NAME} says")
        if problem:
            raise ConfigError(
                f"'{folder}' is damaged: {name} {problem}. Resume from another checkpoint with"
                " resume_from_checkpoint=PATH, or remove this one."
            )


def _sum(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            found.update(block)
    return found.hexdigest()
