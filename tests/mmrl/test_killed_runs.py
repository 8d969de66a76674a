"""Runs that are killed at any moment, also while a checkpoint is written, and resumed."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from mmrl.run.checkpoint import checkpoint_steps
from tests.mmrl import flow_runs
from tests.mmrl.runs import (
    ACCELERATE,
    World,
    command_line,
    launcher,
    metrics,
    module_process,
    same_weights,
)

STEPS = 5


def start(world: World, output: Path, launch: str) -> Any:
    """Start a run, or let it go on; of a policy that denoises latents where the world has none."""
    masked, latent = command_line, flow_runs.words
    words = masked(world, output) if world.policy else latent(world.prompts, output)
    words += [f"max_steps={STEPS}", "save_steps=1", "resume_from_checkpoint=auto"]
    through = launcher(ACCELERATE / launch) if launch else ()
    with output.with_suffix(".log").open("ab") as log:
        return module_process("mmrl.rl", words, *through, stdout=log, stderr=log)


def wait_for_step(running: Any, output: Path, step: int, writing: bool) -> None:
    """Wait until a step is logged, and until a checkpoint is being written."""
    until = time.monotonic() + 240
    while running.poll() is None and time.monotonic() < until:
        reached = (output / "metrics.jsonl").exists() and metrics(output)[-1:]
        partial = not writing or any((output / "checkpoints").glob("*.partial"))
        if reached and reached[0]["step"] >= step and partial:
            return
        time.sleep(0.0005 if reached else 0.02)
    raise AssertionError(output.with_suffix(".log").read_text()[-3000:])


def kill(running: Any) -> None:
    """SIGKILL of a process and all it has started."""
    own = psutil.Process(running.pid)
    for each in [own, *own.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    running.wait()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "launch", "moments"),
    [("masked", "", (1, 1, 3)), ("masked", "fsdp2_cpu2.yaml", (2,)), ("flow", "", (2,))],
)
def test_a_killed_run_ends_as_the_run_that_was_left_alone(
    kind: str, launch: str, moments: tuple[int, ...], world: World, tmp_path: Path
) -> None:
    if kind == "flow":
        world = World("", world.prompts)
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    assert start(world, alone, launch).wait() == 0, alone.with_suffix(".log").read_text()[-3000:]
    for n, step in enumerate(moments):
        running = start(world, killed, launch)
        wait_for_step(running, killed, step, writing=n == 0)
        kill(running)
        for complete in checkpoint_steps(killed / "checkpoints"):
            folder = killed / "checkpoints" / str(complete)
            torch.load(folder / "trainer_state.pt", weights_only=True)
    assert start(world, killed, launch).wait() == 0, killed.with_suffix(".log").read_text()[-3000:]
    steps = [line["step"] for line in metrics(killed) if "learning_rate" in line]
    assert steps == list(range(1, STEPS + 1)) and metrics(killed) == metrics(alone)
    final = "final" if kind == "masked" else "final/transformer"
    assert same_weights(killed / final, alone / final)
