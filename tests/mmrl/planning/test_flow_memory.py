"""The memory that a run of a flow policy is planned to need, and its peak."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mmrl.config import load_config
from mmrl.models.network.velocity_network import LiveBytes
from mmrl.planning.memory import estimate
from mmrl.planning.network_memory import Needs
from mmrl.pretrained.known import known_config, outline_policy
from mmrl.rl_config import RLConfig
from mmrl.rollouts.tasks import Task
from mmrl.runtime.placement import Placement
from scripts.pipeline_skeletons import write_sd3
from tests.mmrl.runs import ROOT
from tests.models.flow import PIPELINE

TASK = "tasks.shapes"


def words(model: Path, side: int, out: Path, *more: str) -> list[str]:
    return (
        [f"output_dir={out}", f"model.path={model}", "model.max_prompt_length=64"]
        + [f"model.image_size={side}", f"{TASK}.prompts=datasets/shapes/train.jsonl"]
        + [f"{TASK}.num_prompts=1", f"{TASK}.num_generations=4", f"{TASK}.rollout_batch_size=4"]
        + [f"{TASK}.sampler={{name: flow, steps: 2, window_size: 1}}"]
        + [f"{TASK}.rewards=[{{name: jpeg}}]", f"{TASK}.algorithm={{name: flow_grpo, beta: 0}}"]
        + ["per_device_train_batch_size=4", "max_steps=1", "save_steps=0", "bf16=false", *more]
    )


def peak(command: list[str]) -> int:
    """Most bytes that the process of a run had in memory."""
    # ru_maxrss begins with the peak of the process that starts this one
    program = "import sys; from mmrl import rl; assert not rl.main(sys.argv[1:]);"
    program += "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
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


def plan(*more: str) -> Needs:
    config = load_config(RLConfig, words(PIPELINE, 32, Path("runs/none"), *more))
    tasks = [Task(name, each) for name, each in config.tasks.items()]
    place = Placement("whole", device="cuda")
    return estimate(config, known_config(str(PIPELINE)) or {}, tasks, place)


def test_each_phase_holds_what_it_reads() -> None:
    whole, moved = plan(), plan("offload=true")
    texts, decoder = whole.device["text encoders"], whole.device["autoencoder"]
    assert texts > 0 < decoder and whole.phases().keys() == {"rollout", "update"}
    assert moved.phases()["rollout"] == whole.phases()["rollout"]
    assert moved.phases()["update"] == whole.phases()["update"] - texts - decoder
    assert (moved.host["text encoders"], moved.host["autoencoder"]) == (texts, decoder)
    freed = plan("model.unload_text_encoders=true", "model.encodings_dir=/nowhere")
    assert freed.phases()["encoding"] == freed.device["weights"] + texts
    assert freed.phases()["update"] == whole.phases()["update"] - texts
    assert "text encoders" not in freed.host


def test_decoding_is_counted_from_shapes_and_grows_with_the_image() -> None:
    network = outline_policy(known_config(str(PIPELINE)) or {})
    small, large = (network.count_decoding(tokens) for tokens in (256, 1024))
    assert large == pytest.approx(4 * small, rel=0.1)
    assert network.count_decoding(256, gradient=True) > 2 * small


def test_bytes_are_alive_until_the_last_view_is_gone() -> None:
    with LiveBytes() as live:
        first = torch.zeros(100, device="meta")
        half = first[:50]
        del first
        other = torch.zeros(25, device="meta") + 1  # two at once
        del half, other
        torch.zeros(100, device="meta")
    assert live.peak == 4 * (100 + 25 + 25)
