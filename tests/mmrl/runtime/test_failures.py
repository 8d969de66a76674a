"""Memory that runs out and connections that break are one line of what to do."""

import re
from pathlib import Path

import pytest
import torch

from mmrl.rl import main
from mmrl.runtime.activity import Display, activity
from mmrl.runtime.failures import LostError, explain_losses
from tests.mmrl.runs import World, command_line

SAID = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.25 GiB of"
    " which 1.20 GiB is free. Including non-PyTorch memory, this process has 78.05 GiB in use."
)


def run_out() -> None:
    raise torch.OutOfMemoryError(SAID)


def test_the_phase_the_sizes_and_what_to_lower_are_named() -> None:
    with (
        pytest.raises(LostError) as error,
        explain_losses(),
        Display(),
        activity("update"),
        activity("micro-batch"),
    ):
        run_out()
    said = str(error.value)
    assert "in 'micro-batch' of 'update'" in said and "per_device_train_batch_size" in said
    assert "Tried to allocate 2.00 GiB. GPU 0 has a total capacity" in said
    assert "non-PyTorch" not in said and "\n" not in said


@pytest.mark.parametrize(
    ("said", "processes", "error"),
    [
        ("[gloo/transport/tcp/pair.cc:534] Connection closed by peer", "2", LostError),
        ("NCCL error in: NCCLUtils.cpp:94", "2", LostError),
        ("Connection closed by peer", "1", RuntimeError),
        ("mat1 and mat2 shapes cannot be multiplied", "2", RuntimeError),
    ],
)
def test_a_broken_connection_to_another_process_is_a_readable_error_and_others_are_left(
    said: str, processes: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", processes)
    with pytest.raises(RuntimeError, match=re.escape(said)) as found, explain_losses():
        raise RuntimeError(f"{said}\nmore")
    assert type(found.value) is error


def test_a_run_without_memory_ends_with_one_line(
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("mmrl.generation.masked.samplers.denoise.write_block", lambda *_: run_out())
    assert main(command_line(world, tmp_path / "run")) == 1
    said = capsys.readouterr().err
    assert "Traceback" not in said and "error: no memory is left in" in said
    assert "'rollouts'" in said
