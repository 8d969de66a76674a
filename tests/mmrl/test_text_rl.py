"""The loop on a text task: prompts to completions to rewards to an update."""

import json
from pathlib import Path

import pytest
import torch

from mmrl.config import ConfigError
from mmrl.generation.masked.samplers.denoise import find_scored
from mmrl.models import load_policy
from mmrl.pretrained.model_config import policy_options
from mmrl.rewards.scoring.scorer import Scorer
from mmrl.rl import train
from mmrl.rl_config import RLConfig
from mmrl.rollouts.held_out import evaluate
from mmrl.rollouts.rollout import _length_metrics
from mmrl.rollouts.tasks import Task
from mmrl.samplers import SamplerConfig
from mmrl.types import Prompt
from tests.mmrl.runs import VQ, World, roll_out, run_config, vowels

SAMPLER = SamplerConfig(name="static", steps=4, block_size=4, eos="stop", cache="prefix", window=2)


def text_config(world: World, folder: Path, **task: object) -> RLConfig:
    """A run on four prompts, one of them too long; the shortest has its own answer."""
    texts = ["a red circle", "two green squares", "a ring " * 40, "a purple ring"]
    rows = [{"prompt": text, "answer": str(n), "level": n} for n, text in enumerate(texts)]
    (folder / "text.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = {"task": "text", "prompts": str(folder / "text.jsonl")}
    settings |= {"eval_prompts": str(folder / "text.jsonl"), "sampler": SAMPLER}
    settings |= {"max_completion_length": 8, "rewards": [{"name": "vowels", "reward": vowels}]}
    own = {"algorithm": task.pop("algorithm", {}), "task": {**settings, **task}}
    config = run_config(world, folder / "run", max_steps=2, eval_steps=1, **own)
    config.model.max_prompt_length = 40
    return config


def test_a_run_on_text_trains_and_leaves_out_what_is_too_long(world: World, tmp_path: Path) -> None:
    config = text_config(world, tmp_path)
    run = train(config)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    updates = [line for line in lines if "loss" in line]
    assert len(updates) == 2 and all(line["grad_norm"] > 0 for line in updates)
    assert any("eval/shapes/vowels" in line for line in lines)
    log = (run / "train.log").read_text()
    assert log.count("text.jsonl: 1 of 4 prompts are longer than model.max_prompt_length") == 2


def test_lengths_and_completions_that_are_cut_off_are_counted(world: World, tmp_path: Path) -> None:
    config = text_config(world, tmp_path)
    policy = load_policy(**policy_options(config.model))
    canvas = policy.canvas([Prompt("0", "text", "a red circle")] * 4, 8)
    eos, eot = canvas.stop_ids
    rows = [[eos] * 8, [9, 9, eot] + [eos] * 5, [9] * 7 + [eos], [9] * 8]
    canvas.tokens[canvas.response] = torch.tensor(rows).flatten()
    canvas.valid = find_scored(canvas)
    assert _length_metrics(canvas) == {
        "completions/mean_length": (1 + 3 + 8 + 8) / 4,
        "completions/min_length": 1.0,
        "completions/max_length": 8.0,
        "completions/clipped_ratio": 0.25,
    }
    task = Task("words", config.tasks["shapes"])
    task.leave_out_long_prompts(policy)
    assert roll_out(task, policy, 0, 0, 0, 1).metrics["completions/max_length"] <= 8


def test_an_evaluation_inside_training_has_its_own_sampler_length_and_rewards(
    world: World, tmp_path: Path
) -> None:
    own = SamplerConfig(name="left_to_right", steps=6, temperature=0.7)
    shown = {"name": "shown", "reward": lambda samples: [float(len(s.completion)) for s in samples]}
    task = {"eval_max_completion_length": 6, "eval_sampler": own, "eval_rewards": [shown]}
    run = train(text_config(world, tmp_path, **task))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    evaluated = {line["step"]: line["eval/shapes/shown"] for line in lines if "time/eval_s" in line}
    assert list(evaluated) == [0, 1, 2]
    for path, step in ((world.policy, 0), (str(run / "final"), 2)):
        policy = load_policy(path, vq=None, max_prompt_length=40)
        held_out = Task("x", text_config(world, tmp_path).tasks["shapes"]).eval_prompts
        prompts = [prompt for prompt in held_out if policy.fits(prompt)]
        with torch.no_grad():
            result = evaluate(policy, prompts, own, Scorer([shown]), length=6)
        assert result is not None and len(result.completions) == 3
        assert result.metrics()["shown"] == pytest.approx(evaluated[step])


def test_a_run_whose_prompts_are_all_too_long_says_so(world: World, tmp_path: Path) -> None:
    config = text_config(world, tmp_path)
    config.model.max_prompt_length = 3
    policy = load_policy(world.policy, vq=VQ, max_prompt_length=3)
    with pytest.raises(ConfigError, match=r"all 4 prompts of .*text\.jsonl' are longer"):
        Task("words", config.tasks["shapes"]).leave_out_long_prompts(policy)
