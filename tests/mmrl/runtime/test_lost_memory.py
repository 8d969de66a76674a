"""Memory that runs out is one line of what to do."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mmrl.rl import main
from mmrl.runtime.activity import Display, activity
from mmrl.runtime.lost_memory import LostMemoryError, explain_lost_memory
from tests.mmrl.runs import command_line

SAID = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.25 GiB of"
    " which 1.20 GiB is free. Including non-PyTorch memory, this process has 78.05 GiB in use."
)


def run_out() -> None:
    raise torch.OutOfMemoryError(SAID)


def test_the_phase_the_sizes_and_what_to_lower_are_named() -> None:
    with (
        pytest.raises(LostMemoryError) as error,
        explain_lost_memory(),
        Display(shown=False),
        activity("update"),
        activity("micro-batch"),
    ):
        run_out()
    said = str(error.value)
    assert "in 'micro-batch' of 'update'" in said and "per_device_train_batch_size" in said
    assert "Tried to allocate 2.00 GiB. GPU 0 has a total capacity" in said
    assert "non-PyTorch" not in said and "\n" not in said


def test_other_errors_are_left_as_they_are() -> None:
    with pytest.raises(RuntimeError, match="^other$"), explain_lost_memory():
        raise RuntimeError("other")


def test_a_run_without_memory_ends_with_one_line(
    world: SimpleNamespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("mmrl.samplers.denoise.write_block", lambda *_: run_out())
    assert main(command_line(world, tmp_path / "run")) == 1
    said = capsys.readouterr().err
    assert "Traceback" not in said and "error: no memory is left in" in said
    assert "'rollouts'" in said
