"""Checkpoints that are either complete or absent.

`checkpoints/<step>/` is written under another name and renamed when everything is on disk, so that
a full disk, a crash or a kill at any moment leaves the previous checkpoint as it was.
"""

import errno
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from safetensors import SafetensorError

from mmrl.config import check

logger = logging.getLogger(__name__)
ASIDE, _REMOVED = ".partial", ".removed"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class CheckpointError(RuntimeError):
    """A checkpoint that could not be written; earlier checkpoints are untouched."""


def write_file(target: Path, text: str) -> None:
    """Write a text under another name and rename it, so that a kill leaves `target` whole."""
    aside = target.with_name(target.name + ASIDE)
    aside.write_text(text, encoding="utf-8")
    os.replace(aside, target)


def write_directory(
    target: Path,
    write: Callable[[Path], None],
    is_main: bool = True,
    wait_for_everyone: Callable[[], None] = lambda: None,
    background: Callable[[Callable[[], None]], None] | None = None,
) -> Path:
    """Write a directory under another name and rename it to `target`, in the place of an existing
    one; return that. All processes call `write`, which fills the empty directory it is given, with
    a barrier between; the main one creates and renames it. There `background` gets what writes the
    large files and renames the directory, to call it in a thread; without it all is done on return.

    Raises CheckpointError: files could not be written, for instance because the disk is full. After
    this and any other error the unfinished directory is removed and `target` is unchanged."""
    from mmrl.models.weights import defer_writes  # imports torch

    aside = target.with_name(target.name + ASIDE)
    with _remove_unfinished(aside, target):
        if is_main:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(parents=True)
        wait_for_everyone()
        with defer_writes() if background else nullcontext([]) as writes:
            write(aside)
        wait_for_everyone()

    def complete() -> None:
        with _remove_unfinished(aside, target):
            while writes:
                writes.pop(0)()  # and its tensors are freed
            for path in filter(Path.is_file, aside.rglob("*")):
                _flush(path)
            old = _set_aside(target) if target.exists() else None
            aside.rename(target)
            if old is not None:
                shutil.rmtree(old, ignore_errors=True)

    if is_main:
        complete() if background is None else background(complete)
    if background is None:
        wait_for_everyone()
    return target


def _flush(path: Path) -> None:
    """Force a file to disk: some file systems report a full one only then."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


@contextmanager
def _remove_unfinished(aside: Path, target: Path) -> Iterator[None]:
    """After an error, remove the directory and say what remains."""
    try:
        yield
    except BaseException as error:
        shutil.rmtree(aside, ignore_errors=True)
        if not _is_of_disk(error):
            raise
        full = not isinstance(error, OSError) or error.errno in _FULL
        advice = "Free some space (or lower save_total_limit)" if full else "Correct that"
        raise CheckpointError(
            f"Writing '{target}' failed: {error}. Nothing there was changed and earlier "
            f"checkpoints are intact. {advice} and run again with resume_from_checkpoint=auto."
        ) from error


def _is_of_disk(error: BaseException) -> bool:
    """Whether an error comes from the disk; safetensors and torch.save wrap those of a full one."""
    if isinstance(error, SafetensorError):
        return "I/O" in str(error)
    if isinstance(error, RuntimeError):
        return "PytorchStreamWriter" in str(error) or "inline_container" in str(error)
    return isinstance(error, OSError)


def _set_aside(path: Path) -> Path:
    """Rename what is to be removed: a kill must not leave a part of it under its name."""
    aside = path.with_name(path.name + _REMOVED)
    if aside.exists():
        shutil.rmtree(aside)
    return path.rename(aside)


def checkpoint_steps(folder: Path) -> list[int]:
    """Return the steps of the complete checkpoints of a folder, oldest first."""
    return sorted(int(entry.name) for entry in folder.glob("*") if entry.name.isdigit())


def model_folders(run: Path) -> list[Path]:
    """Directories of a run that have its models, the last one first: `final/`, checkpoints."""
    steps = reversed(checkpoint_steps(run / "checkpoints"))
    found = [run / "final", *(run / "checkpoints" / str(step) for step in steps)]
    return [folder for folder in found if folder.is_dir()]


def find_checkpoint(resume_from_checkpoint: str | None, folder: Path) -> Path | None:
    """Return the checkpoint a run starts from: for `auto` the newest one in `folder`, its
    `checkpoints/`, if there is any; None for a fresh start. Raises ConfigError: the path is not a
    checkpoint."""
    if resume_from_checkpoint is None:
        return None
    steps = checkpoint_steps(folder)
    if resume_from_checkpoint == "auto":
        return folder / str(steps[-1]) if steps else None
    path = Path(resume_from_checkpoint)
    known = ", ".join(map(str, steps)) or "none"
    allowed = f"auto, null or a checkpoint directory named by its step; '{folder}' holds: {known}"
    found = path.is_dir() and path.name.isdigit()
    check(found, "resume_from_checkpoint", str(path), allowed)
    return path


def check_within(step: int, max_steps: int, checkpoint: Path) -> None:
    """Raise a ConfigError where the step of a checkpoint is beyond the last one of a run."""
    allowed = f"at least {step}, the step of '{checkpoint}'"
    advice = "Raise it, or resume from an earlier checkpoint."
    check(step <= max_steps, "max_steps", max_steps, allowed, advice)


def prune_checkpoints(folder: Path, step: int, keep: int | None = None, best: int = -1) -> None:
    """Remove later and surplus checkpoints of a run at `step`, and leftovers of interrupted writes.

    Later ones than the one just written or resumed from are of an abandoned run. Of those up to
    `step` the newest `keep` are kept, None keeps all, and that of the step `best` as well."""
    for ending in (ASIDE, _REMOVED):
        for entry in folder.glob("*" + ending):
            shutil.rmtree(entry, ignore_errors=True)
    steps = checkpoint_steps(folder)
    earlier = [n for n in steps if n <= step]
    kept = earlier[-keep:] if keep else earlier
    for n in reversed(steps):  # those of an abandoned run first
        if n not in (*kept, best):
            shutil.rmtree(_set_aside(folder / str(n)))
            logger.info("removed checkpoint %d", n)
