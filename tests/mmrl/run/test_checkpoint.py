"""Which checkpoints stay, which are dropped, and what a failure or a kill leaves."""

import errno
from pathlib import Path

import pytest
from safetensors import SafetensorError

from mmrl.run.checkpoint import (
    CheckpointError,
    checkpoint_steps,
    prune_checkpoints,
    write_directory,
)


def checkpoints(folder: Path, *steps: int) -> Path:
    for step in steps:
        write_directory(folder / str(step), lambda aside: mark(aside, "old"))
    return folder


def mark(folder: Path, text: str) -> None:
    (folder / "mark").write_text(text)


def test_the_checkpoint_just_written_stays_and_those_of_a_left_course_go(tmp_path: Path) -> None:
    folder = checkpoints(tmp_path, 1, 2, 3, 4, 6)
    prune_checkpoints(folder, step=4)
    assert checkpoint_steps(folder) == [1, 2, 3, 4]
    prune_checkpoints(folder, step=3, keep=2)
    assert checkpoint_steps(folder) == [2, 3]
    checkpoints(folder, 4)
    prune_checkpoints(folder, step=4, keep=2)
    assert checkpoint_steps(folder) == [3, 4]
    checkpoints(folder, 5)
    prune_checkpoints(folder, step=5, keep=1, best=3)
    assert checkpoint_steps(folder) == [3, 5]


def test_a_kill_while_checkpoints_are_removed_leaves_no_part_of_one_under_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoints(tmp_path, 1, 2, 3, 7)

    def kill(path: Path, *_: object, **__: object) -> None:
        next(Path(path).iterdir()).unlink()
        raise KeyboardInterrupt

    for left in ([1, 2, 3], [2, 3]):  # the one of an abandoned run, then the surplus one
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("shutil.rmtree", kill)
            prune_checkpoints(folder, step=3, keep=2)
        assert checkpoint_steps(folder) == left
        prune_checkpoints(folder, step=9)
    assert sorted(path.name for path in folder.iterdir()) == ["2", "3"]


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "Free some space"),
        (SafetensorError("Error while serializing: I/O error: No space left"), "Free some space"),
        (RuntimeError("PytorchStreamWriter failed writing file data/0"), "Free some space"),
        (PermissionError(errno.EACCES, "Permission denied"), "Correct that"),
    ],
)
def test_what_the_disk_refuses_is_said_with_what_to_do(
    error: Exception, advice: str, tmp_path: Path
) -> None:
    def write(aside: Path) -> None:
        mark(aside, "half")
        raise error

    checkpoints(tmp_path, 2)
    with pytest.raises(CheckpointError, match=f"earlier checkpoints are intact. {advice}"):
        write_directory(tmp_path / "4", write)
    assert [entry.name for entry in tmp_path.iterdir()] == ["2"]


@pytest.mark.parametrize(
    "error", [RuntimeError("CUDA out of memory"), SafetensorError("bad dtype"), KeyError("weight")]
)
def test_what_is_no_fault_of_the_disk_is_not_taken_as_one(error: Exception, tmp_path: Path) -> None:
    def write(aside: Path) -> None:
        mark(aside, "half")
        raise error

    with pytest.raises(type(error), match=str(error.args[0])):
        write_directory(tmp_path / "4", write)
    assert not list(tmp_path.iterdir())
