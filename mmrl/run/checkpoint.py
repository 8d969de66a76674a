"""Checkpoints that are either complete or absent.

`checkpoints/<step>/` is written under another name and renamed when everything is on disk, so that
a full disk, a crash or a kill at any moment leaves the previous checkpoint as it was.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from safetensors import SafetensorError

from mmrl.config import ConfigError
from mmrl.run.checksums import write_checksums

logger = logging.getLogger(__name__)
_ASIDE = ".partial"
_REPLACED = ".replaced"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class CheckpointError(RuntimeError):
    """A checkpoint that could not be written; earlier checkpoints are untouched."""


def write_directory(
    target: Path,
    write: Callable[[Path], None],
    is_main: bool = True,
    wait_for_everyone: Callable[[], None] = lambda: None,
) -> Path:
    """Fill a directory aside and put it in place of `target` in one rename.

    Args:
        target: final place; what is there now is replaced.
        write: fills the empty directory it is given. With several processes it is called on all of
            them, for state that each process writes itself; it decides what each writes.
        is_main: whether this process creates and renames the directory.
        wait_for_everyone: barrier between the processes, such as that of `Accelerator`.

    Returns:
        `target`.

    Raises:
        CheckpointError: files could not be written, for instance because the disk is full. Then,
            as with any other error, the unfinished directory is removed and whatever was at
            `target` is still there.
    """
    aside = target.with_name(target.name + _ASIDE)
    try:
        if is_main:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(parents=True)
        wait_for_everyone()
        write(aside)
        wait_for_everyone()
        if is_main:
            write_checksums(aside)
            _flush(aside)
            _replace(aside, target)
    except BaseException as error:
        shutil.rmtree(aside, ignore_errors=True)
        if not _while_writing(error):
            raise
        full = not isinstance(error, OSError) or error.errno in _FULL
        advice = "Free some space (or lower save_total_limit)" if full else "Correct that"
        raise CheckpointError(
            f"Writing '{target}' failed: {error}. Nothing there was changed and earlier "
            f"checkpoints are intact. {advice} and run again with resume_from_checkpoint=auto."
        ) from error
    wait_for_everyone()
    return target


def checkpoint_steps(folder: Path) -> list[int]:
    """Return the steps of the complete checkpoints of a folder, oldest first."""
    if not folder.is_dir():
        return []
    return sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdigit())


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint of a folder, None when there is none."""
    steps = checkpoint_steps(folder)
    return folder / str(steps[-1]) if steps else None


def recover_checkpoints(folder: Path) -> None:
    """Put back what a kill between the two renames of a replacement has left aside."""
    for old in folder.glob("*" + _REPLACED):
        target = old.with_name(old.name.removesuffix(_REPLACED))
        if not target.exists():
            with suppress(FileNotFoundError):  # another process was first
                old.rename(target)


def find_checkpoint(resume_from_checkpoint: str | None, folder: Path) -> Path | None:
    """Return the checkpoint a run starts from.

    Args:
        resume_from_checkpoint: `auto` for the newest one of `folder` if it has any, a path, or None
            for a fresh start.
        folder: `checkpoints/` of the run.

    Raises:
        ConfigError: the path is not a checkpoint.
    """
    if resume_from_checkpoint is None:
        return None
    if resume_from_checkpoint == "auto":
        return newest_checkpoint(folder)
    path = Path(resume_from_checkpoint)
    if not path.is_dir() or not path.name.isdigit():
        known = ", ".join(str(step) for step in checkpoint_steps(folder)) or "none"
        raise ConfigError(
            f"resume_from_checkpoint is '{path}', which is not a checkpoint directory named by its "
            f"step; '{folder}' holds: {known}. Use auto, null or such a path."
        )
    return path


def prune_checkpoints(folder: Path, step: int, keep: int | None = None) -> None:
    """Remove what a run at `step` has no use for, and what interrupted writes have left.

    Args:
        folder: `checkpoints/` of the run.
        step: of the checkpoint just written or resumed from; later ones belong to a course that the
            run has left.
        keep: how many to keep up to `step`, the newest ones; None keeps all.
    """
    if folder.is_dir():
        recover_checkpoints(folder)
        for entry in folder.iterdir():
            if entry.name.endswith((_ASIDE, _REPLACED)):
                shutil.rmtree(entry, ignore_errors=True)
    steps = checkpoint_steps(folder)
    later, earlier = [n for n in steps if n > step], [n for n in steps if n <= step]
    for n in [*later, *(earlier[:-keep] if keep else [])]:
        shutil.rmtree(folder / str(n))
        logger.info("removed checkpoint %d", n)


def _while_writing(error: BaseException) -> bool:
    """Whether an error comes from the disk and not from what was to be written.

    safetensors and torch.save report a full disk as errors of their own.
    """
    if isinstance(error, SafetensorError):
        return "I/O" in str(error)
    if isinstance(error, RuntimeError):
        return "PytorchStreamWriter" in str(error) or "inline_container" in str(error)
    return isinstance(error, OSError)


def _replace(aside: Path, target: Path) -> None:
    old = target.with_name(target.name + _REPLACED)
    if target.exists():
        shutil.rmtree(old, ignore_errors=True)
        os.rename(target, old)
    os.rename(aside, target)
    shutil.rmtree(old, ignore_errors=True)


def _flush(folder: Path) -> None:
    """Force file contents to disk: some file systems report a full disk only then."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
