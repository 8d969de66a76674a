"""Presets: rows of one table, by name, with every column open to change."""

import re
from pathlib import Path

import pytest
import torch
import yaml
from omegaconf import OmegaConf

from mmrl.algorithms import AlgorithmConfig, LossInputs, load_algorithm, policy_loss
from mmrl.algorithms.aggregation import BatchSize
from mmrl.config import ConfigError, load_config, merge, to_plain
from mmrl.generation.masked.hidden import Hidden
from mmrl.rl_config import RLConfig
from mmrl.types import Passes, Scores
from tests.mmrl.runs import World, run_config

FILES = {
    path.stem: path.read_text()
    for path in sorted((Path(__file__).parents[3] / "configs" / "algorithm").glob("*.yaml"))
}
CAUSAL = [name for name, text in FILES.items() if "\nstrategy: causal\n" in text]
FLOW = [name for name, text in FILES.items() if "\nstrategy: replay\n" in text]
SHOWN = "\nstrategy: (renoise|last_steps)\n"
VELOCITIES = [name for name, text in FILES.items() if re.search(SHOWN, text)]
PRESETS = [name for name in FILES if name not in CAUSAL + FLOW + VELOCITIES]
"""Methods of policies that append tokens, of those that denoise, and of those that un-mask."""


@pytest.mark.parametrize("name", FILES)
def test_a_preset_cites_its_paper_and_names_its_deviations(name: str) -> None:
    lines = FILES[name].splitlines()
    said = " ".join(line[1:].strip() for line in lines if line.startswith("#"))
    assert re.search(r"arXiv \d{4}\.\d{5}", said) and "Deviation" in said


@pytest.mark.parametrize("name", CAUSAL)
def test_a_causal_preset_starts_at_ratio_one_and_moves_the_right_way(name: str) -> None:
    columns = {k: v for k, v in yaml.safe_load(FILES[name]).items() if k != "strategy"}
    method = merge(AlgorithmConfig, columns)
    assert method.name == name
    counted = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()
    new = torch.full((1, 2, 4), -1.0, requires_grad=True)
    passes = Passes(Hidden(counted[None]), counted[None], counted[None].float())
    advantages = torch.tensor([1.0, -2.0])
    if method.value is not None:  # of tokens
        advantages = advantages[None, :, None].expand(1, 2, 4)
    size = BatchSize(2, 6, 6, method.horizon or 4, 2, 2)
    given = LossInputs(passes, Scores(new), advantages)
    given.reference = Scores(new.detach()) if method.beta else None
    loss, metrics = policy_loss(given, method, size)
    assert float(metrics["ratio"]) == 1 and float(metrics.get("kl", 0.0)) == 0
    assert metrics["clip_ratio/low_mean"] == metrics["clip_ratio/high_mean"] == 0
    step = -torch.autograd.grad(loss, new)[0][0]
    assert bool((step[0] > 0).all()) and bool((step[1, :2] < 0).all())
    assert bool((step[1, 2:] == 0).all())
    assert float(step[1, 0] / step[0, 0]) == pytest.approx(
        -4 if method.aggregation in ("grpo", "gspo", "gmpo") else -2
    ), "a short completion weighs as much as a long one only where each has its own mean"


REFUSED = """
name: mask_grop -> 'mask_grop' | unigrpo | Did you mean 'mask_grpo'?
scale_rewards: all -> algorithm.scale_rewards | batch, chunk, group, none, softmax
strategy: uniform, max_mask_rate: 0.1, min_mask_rate: 0.5 -> max_mask_rate | at least min_mask_rate
strategy: blockwise -> algorithm.block_size | needs blocks
ratio_level: block, block_size: 4, bound: elbo -> algorithm.ratio_level | \
bound: elbo has no value of every | sequence
strategy: trace, num_draws: 2 -> algorithm.num_draws | follows an order
strategy: left_to_right, prompt_mask_rate: 0.1 -> algorithm.prompt_mask_rate
strategy: trace, num_slices: 4, slice_size: 2 -> algorithm.num_slices | slice_size 2 | null
aggregation: gmpo, ratio_level: sequence -> algorithm.aggregation | no ratio of every token | gspo
bound: additive, ratio_level: sequence -> algorithm.ratio_level | one by one | step
top_entropy_quantile: 0.5, bound: elbo -> algorithm.top_entropy_quantile | \
bound: elbo has no value of every | change bound
surrogate: dppo, ratio_level: sequence -> algorithm.surrogate | every token | change ratio_level
surrogate: drpo, aggregation: gmpo -> one term for all tokens | change aggregation
surrogate: cispo, aggregation: gmpo -> has its own | surrogate: clipped
baseline: leave_one_out, scale_rewards: softmax -> algorithm.baseline | within the group
surrogate: cispo, delta: 4.0 -> algorithm.delta | surrogate: cispo has no ratio | delta: null
surrogate: guard, aggregation: dapo -> means of denoising steps | change strategy
kl: gaussian -> algorithm.kl is gaussian | scores tokens | or k3
old_logprobs: rollout -> algorithm.old_logprobs | other states
name: grpo_guard, old_logprobs: rollout -> old_logprobs: rollout records no means | \
change old_logprobs
name: flow_grpo, old_logprobs: rollout, kl_to: old -> algorithm.kl is gaussian_rate | \
old_logprobs: rollout
name: flow_grpo, kl_level: bound -> algorithm.kl_level | use kl_level: token
name: flash_grpo, bound: elbo -> algorithm.step_weights | no value of every token or step
name: flow_grpo, top_entropy_quantile: 0.5 -> whose entropy is given
name: ppo, adv_clip_max: 5.0 -> algorithm.adv_clip_max | makes others
loss_type: dapo -> algorithm.loss_type | is aggregation, with surrogate
importance_sampling_level: token -> TRL calls so is ratio_level.
epsilonn: 0.1 -> epsilonn | Did you mean 'epsilon'?
"""


@pytest.mark.parametrize("row", REFUSED.strip().splitlines())
def test_a_column_that_cannot_be_is_named_with_what_is_allowed(row: str) -> None:
    options, named = row.split(" -> ")
    with pytest.raises(ConfigError) as error:
        load_algorithm(yaml.safe_load(f"{{{options}}}"))
    for word in named.split(" | "):
        assert word in str(error.value)


def test_the_columns_of_a_run_are_refused_under_the_name_of_another_preset(
    world: World, tmp_path: Path
) -> None:
    config = run_config(world, tmp_path / "run", algorithm={"name": "trace_rl"})
    file = tmp_path / "config.yaml"
    tasks = to_plain(config)["tasks"]
    tasks["shapes"]["rewards"] = [{"name": "jpeg"}]
    OmegaConf.save({"model": to_plain(config)["model"], "tasks": tasks}, file)
    again = load_config(RLConfig, [f"config={file}"])
    assert again.tasks["shapes"].algorithm == config.tasks["shapes"].algorithm
    name = "tasks.shapes.algorithm.name"
    with pytest.raises(ConfigError, match=f"{name} is 'coupled_grpo'; it must be trace_rl"):
        load_config(RLConfig, [f"config={file}", f"{name}=coupled_grpo"])
    words = [f"config={file}", "~tasks.shapes.algorithm", f"{name}=coupled_grpo"]
    fresh = load_config(RLConfig, words).tasks["shapes"].algorithm
    assert load_algorithm(fresh) == load_algorithm({"name": "coupled_grpo"})
