"""The memory that a run of a flow policy is planned to need, and its peak."""

import subprocess
import sys
from pathlib import Path

import pytest

from mmrl.config import load_config
from mmrl.planning.memory import estimate
from mmrl.pretrained.known import known_config
from mmrl.rl_config import RLConfig
from mmrl.rollouts.tasks import Task
from scripts.pipeline_skeletons import write_sd3
from tests.mmrl.runs import ROOT
from tests.models.flow import PIPELINE

TASK = "tasks.shapes"


def words(model: Path, side: int, out: Path, *more: str) -> list[str]:
    return [
        f"output_dir={out}",
        f"model.path={model}",
        "model.max_prompt_length=64",
        f"model.image_size={side}",
        f"{TASK}.prompts=datasets/shapes/train.jsonl",
        f"{TASK}.num_prompts=1",
        f"{TASK}.num_generations=4",
        f"{TASK}.rollout_batch_size=4",
        f"{TASK}.sampler={{name: flow, steps: 2, window_size: 1}}",
        f"{TASK}.rewards=[{{name: jpeg}}]",
        f"{TASK}.algorithm={{name: flow_grpo, beta: 0}}",
        "per_device_train_batch_size=4",
        "max_steps=1",
        "save_steps=0",
        "bf16=false",
        *more,
    ]


def peak(command: list[str]) -> int:
    """Most bytes that the process of a run had in memory."""
    program = "import resource, sys; from mmrl import rl; assert not rl.main(sys.argv[1:]);"
    program += "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    done = subprocess.run(
        [sys.executable, "-c", program, *command], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout.split()[-1]) * 1024


@pytest.mark.slow
@pytest.mark.parametrize("lora", [(), ("model.lora={r: 8}",)], ids=["full", "lora"])
def test_a_run_needs_what_its_plan_says(lora: tuple[str, ...], tmp_path: Path) -> None:
    model = tmp_path / "model"
    write_sd3(model, width=1536, layers=2)
    command = words(model, 512, tmp_path / "run", *lora)
    config = load_config(RLConfig, command)
    tasks = [Task(name, each) for name, each in config.tasks.items()]
    _, planned = estimate(config, known_config(str(model)) or {}, tasks).peak()
    process = peak(words(PIPELINE, 32, tmp_path / "tiny"))
    assert peak(command) - process == pytest.approx(planned, rel=0.15)
