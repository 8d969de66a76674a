"""The loop on a policy that denoises latents: first ratios, processes, micro-batches, resume."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from transformers import T5EncoderModel

from mmrl import rl
from tests.mmrl.flow_runs import TASK, words
from tests.mmrl.pair import Pair
from tests.mmrl.runs import metrics, same_weights
from tests.mmrl.same_runs import close, equal_metrics
from tests.models.flow import count_calls

LORA = "model.lora={r: 4, target_modules: [q, k, v, o]}"


def task(*words: str) -> list[str]:
    return [f"{TASK}.{word}" for word in words]


OLD = task("algorithm.cfg_scale=1.5", "algorithm.beta=0.04", "algorithm.old_logprobs=rollout")
GUIDED = task("sampler={name: cps, steps: 3, window_size: 1, cfg_scale: 1.5}")
METHODS = {
    "all": task("sampler.name=flow", "algorithm.beta=0.04", "algorithm.kl_target=1e-3"),
    "lora": [LORA, *GUIDED, *OLD],
}


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six prompts."""
    path = tmp_path_factory.mktemp("flow") / "prompts.jsonl"
    lines = Path("datasets/shapes/train.jsonl").read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:12:2]))
    return path


HALVES = [*task("num_prompts=4"), "num_mini_batches=2"]
NFT = task("sampler={name: dpm2, steps: 4}", "algorithm={name: diffusion_nft, num_draws: 2}")
CONTRASTS = {
    "diffusion_nft": [LORA, *NFT, *task("sample_with=old"), "old_policy={initial: 0.5}"],
    "dgpo": HALVES + task("sampler={name: ode, steps: 3}", "algorithm={name: dgpo, num_draws: 2}"),
}
GLOW = task("rewards=[{name: 'tests/mmrl/runs.py:glow'}]", "sampler={name: ode, steps: 4}")
THROUGH = {
    "draft": [LORA, *GLOW, *task("algorithm={name: draft, grad_steps: 2, beta: 0.01}")],
    "drtune": [*GLOW, *task("algorithm={name: drtune, grad_steps: 2}"), *HALVES],
}


def run(prompts: Path, out: Path, *more: str) -> Path:
    assert rl.main(words(prompts, out, *more)) == 0
    return out


def weights(out: Path) -> Path:
    """Where the trained weights are: of the transformer in a pipeline, or those of an adapter."""
    whole = out / "final" / "transformer"
    return whole if whole.is_dir() else out / "final"


def begins_where_it_samples(out: Path) -> None:
    """Assert that scoring finds the log-probs of the sampler, ratios of 1 and no KL at first."""
    first, second = metrics(out)
    assert first["sampling/sampling_logp_difference/mean"] < 1e-6
    assert first["ratio"] == pytest.approx(1, abs=1e-6) and first["kl"] == 0 != second["kl"]
    assert first["clip_ratio/low_mean"] == first["clip_ratio/high_mean"] == 0 != first["grad_norm"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*METHODS, *CONTRASTS, *THROUGH])
def test_processes_micro_batches_and_a_resumed_run_are_one(
    prompts: Path, tmp_path: Path, pair: Pair, name: str
) -> None:
    changes = {**METHODS, **CONTRASTS, **THROUGH}[name]
    pair.begin("mmrl.rl", words(prompts, tmp_path / "two", *changes))
    one = run(prompts, tmp_path / "one", *changes)
    whole = run(prompts, tmp_path / "whole", *changes, "per_device_train_batch_size=8")
    parts = run(prompts, tmp_path / "parts", *changes, "max_steps=1")
    run(prompts, parts, *changes, "resume_from_checkpoint=auto")
    pair.end()
    for other in (tmp_path / "two", whole):
        if name in METHODS:
            begins_where_it_samples(other)
        equal_metrics(one, other)
        close(weights(one), weights(other), 1e-5)
    equal_metrics(one, parts, after=1)
    assert same_weights(weights(one), weights(parts))


@pytest.mark.slow
@pytest.mark.parametrize("changes", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("sharing", ["sharing_pair", "zero3_pair"])
def test_processes_that_share_the_blocks_are_one(
    prompts: Path, tmp_path: Path, request: Any, sharing: str, changes: Sequence[str]
) -> None:
    both: Pair = request.getfixturevalue(sharing)
    both.begin("mmrl.rl", words(prompts, tmp_path / "two", *changes))
    one = run(prompts, tmp_path / "one", *changes)
    both.end()
    begins_where_it_samples(tmp_path / "two")
    equal_metrics(one, tmp_path / "two")
    close(weights(one), weights(tmp_path / "two"), 1e-5)


def test_the_texts_of_a_run_are_encoded_once(
    prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    count_calls(T5EncoderModel, calls, monkeypatch)
    out = run(prompts, tmp_path, "max_steps=4", "save_steps=0", f"{TASK}.sampler.steps=2")
    assert len(metrics(out)) == 4 and len(calls) == 6 + 1, "six prompts and the empty text"


SHORT = ("config=configs/rl/shapes_flow_brightness.yaml", "max_steps=6", "eval_steps=6")
SHORT += (f"{TASK}.num_prompts=6", f"{TASK}.rollout_batch_size=48", f"{TASK}.eval_limit=24")
SHORT += ("per_device_train_batch_size=24", "learning_rate=3e-4", "bf16=false")


def learn(folder: Path, *words: str) -> float:
    """How much brighter held-out images are after six steps."""
    assert rl.main([*SHORT, f"output_dir={folder}", *words]) == 0
    key = "eval/shapes/brightness"
    first, last = (line[key] for line in metrics(folder) if key in line)
    return last - first


@pytest.mark.slow
def test_held_out_images_become_brighter_if_that_is_rewarded_and_not_if_rewards_are_shuffled(
    tmp_path: Path,
) -> None:
    gain = learn(tmp_path / "run")
    control = learn(tmp_path / "control", f"{TASK}.shuffle_advantages=true")
    assert gain > 0.05 and gain > control + 0.05
