"""One update: what holds before the first step, micro-batches, adapters, several tasks."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mmrl.config import ConfigError
from mmrl.estimators import score
from mmrl.models import load_policy
from mmrl.rl import train
from mmrl.runtime.failures import DivergenceError
from mmrl.runtime.precision import compile_blocks
from mmrl.training.trainer import Trainer
from tests.mmrl.runs import LORA, VQ, World, rollouts, run_config, task_config, trainer_of

FAST = {"name": "just_grpo", "slice_size": 4, "top_entropy_quantile": 0.25}
"""Trains on some of the tokens alone, most of them of other passes than their neighbours'."""
STILL = {"warmup_steps": 1000, "learning_rate": 1e-30}
"""The policy does not move, so what holds in the first inner iteration holds in all of them."""


slow = partial(pytest.param, marks=pytest.mark.slow)


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in trainer.trained.named_parameters()}


def updated(config: Any, steps: int = 1) -> tuple[Trainer, dict[str, float]]:
    trainer = trainer_of(config)
    values: dict[str, float] = {}
    for _ in range(steps):
        values = trainer.update(rollouts(config, trainer))
    return trainer, values


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": {"num_iterations": 1}},
        {"algorithm": {"num_iterations": 2}},
        {"algorithm": {"num_iterations": 2, "num_draws": 2, "cfg_scale": 1.5}, "bf16": True},
        {"algorithm": {"name": "diffu_grpo"}, "model": {"attn_implementation": "eager"}},
        {"algorithm": {"bound": "elbo"}, "model": {"gradient_checkpointing": True}},
        {"algorithm": {**FAST, "num_iterations": 2}},
    ],
    ids=["once", "twice", "guided-bf16", "eager", "elbo", "fast"],
)
def test_at_the_start_every_ratio_is_one_and_there_is_no_divergence(
    world: World, tmp_path: Path, lora: dict | None, changes: dict
) -> None:
    changes = {**changes, "algorithm": {"beta": 0.1, **changes["algorithm"]}}
    _, values = updated(run_config(world, tmp_path, lora=lora, **STILL, **changes))
    assert (values["ratio"], values["approx_kl"], values["kl"]) == (1.0, 0.0, 0.0)
    assert values["clip_ratio/low_mean"] == values["clip_ratio/high_mean"] == 0


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_the_reference_stays_the_policy_of_the_start(
    world: World, tmp_path: Path, lora: dict | None
) -> None:
    config = run_config(world, tmp_path, lora=lora, algorithm={"beta": 0.1})
    trainer, _ = updated(config, steps=2)
    canvas = trainer.policy.canvas(rollouts(config, trainer)["shapes"][1].prompts[:2])
    start = load_policy(world.policy, VQ, max_prompt_length=24)
    ask = {"input_ids": canvas.tokens, "attention_mask": canvas.attend}
    expected = start.model(**ask).logits
    assert not torch.equal(trainer.policy.model(**ask).logits, expected)
    with trainer.reference():
        assert torch.equal(trainer.policy.model(**ask).logits, expected)
    assert not torch.equal(trainer.policy.model(**ask).logits, expected)


@pytest.mark.parametrize(
    ("algorithm", "lora"),
    [({"num_draws": 2}, None), ({"num_draws": 2}, LORA), ({**FAST, "aggregation": "gspo"}, None)]
    + [*[slow({**FAST, "aggregation": mean}, None) for mean in ("grpo", "dapo", "dr_grpo")]]
    + [({"num_draws": 2, "top_entropy_quantile": 0.1}, LORA)],
    ids=["full", "lora", "fast", "fast-grpo", "fast-dapo", "fast-dr_grpo", "uncertain"],
)
def test_the_size_of_micro_batches_changes_nothing_but_rounding(
    world: World, tmp_path: Path, algorithm: dict, lora: dict | None
) -> None:
    algorithm = {"beta": 0.1, **algorithm}
    results = {}
    for size in (8, 2, 1):
        config = run_config(
            world,
            tmp_path,
            lora=lora,
            algorithm=algorithm,
            per_device_train_batch_size=size,
            adam_epsilon=1e-3,
            model={"dtype": "float64"},  # the same tokens are the uncertain ones
        )
        trainer, values = updated(config)
        results[size] = weights(trainer), values
    for size in (2, 1):
        for name, tensor in results[8][0].items():
            torch.testing.assert_close(results[size][0][name], tensor, atol=1e-6, rtol=0)
        for key in ("loss", "grad_norm", "ratio", "kl", "entropy"):
            assert results[size][1][key] == pytest.approx(results[8][1][key], rel=1e-4, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_compiled_blocks_change_nothing_but_rounding(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lora: dict | None
) -> None:
    traced = partial(compile_blocks, backend="eager")  # all of it but the C++ compiler
    monkeypatch.setattr("mmrl.training.run_trainer.compile_blocks", traced)
    results = []
    for compiled in (False, True):
        config = run_config(
            world,
            tmp_path,
            lora=lora,
            algorithm={"beta": 0.1},
            torch_compile=compiled,
            adam_epsilon=1e-3,
        )
        trainer, values = updated(config, steps=2)
        results.append((weights(trainer), values["loss"], values["kl"]))
    (plain, *numbers), (other, *others) = results
    assert plain.keys() == other.keys()
    for name, tensor in plain.items():
        torch.testing.assert_close(other[name], tensor, atol=1e-6, rtol=0)
    assert others == pytest.approx(numbers, rel=1e-4, abs=1e-6)


def test_new_old_and_reference_policy_are_scored_on_the_same_masks(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = run_config(world, tmp_path, lora=LORA, algorithm={"beta": 0.1, "num_iterations": 2})
    trainer = trainer_of(config)
    seen: dict[str, list[Tensor]] = {"old": [], "reference": [], "new": []}

    def watched(policy: Any, canvas: Any, passes: Any, *options: float) -> Any:
        off = all(layer.disable_adapters for layer in adapters(trainer))
        who = "new" if torch.is_grad_enabled() else "reference" if off else "old"
        seen[who].append(passes.query.mask)
        return score(policy, canvas, passes, *options)

    monkeypatch.setattr("mmrl.training.trainer.score", watched)
    trainer.update(rollouts(config, trainer))
    old, reference, new = (torch.cat(hidden) for hidden in seen.values())
    assert torch.equal(old, reference) and torch.equal(old, new)
    first, second = new.chunk(2)
    assert not torch.equal(first, second)


def adapters(trainer: Trainer) -> list[Any]:
    return [m for m in trainer.policy.network.modules() if hasattr(m, "disable_adapters")]


@pytest.mark.parametrize("merge", [True, False])
def test_a_saved_adapter_loads_as_an_ordinary_policy_merged_or_not(
    world: World, tmp_path: Path, merge: bool
) -> None:
    config = run_config(world, tmp_path, lora=LORA, merge_adapter=merge)
    trainer, _ = updated(config)
    kept = weights(trainer)
    (tmp_path / "model").mkdir()
    trainer.save_model(tmp_path / "model")
    assert (tmp_path / "model" / "adapter_config.json").exists() != merge
    assert all(torch.equal(tensor, kept[name]) for name, tensor in weights(trainer).items())
    merged = load_policy(tmp_path / "model", VQ, max_prompt_length=24)
    canvas = merged.canvas(rollouts(config, trainer)["shapes"][1].prompts[:2])
    ask = {"input_ids": canvas.tokens, "attention_mask": canvas.attend}
    with torch.no_grad():
        trained, saved = trainer.policy.model(**ask).logits, merged.model(**ask).logits
        with trainer.trained.disable_adapter():
            start = trainer.policy.model(**ask).logits
    torch.testing.assert_close(saved, trained, atol=1e-5, rtol=1e-5)
    assert float((saved - start).abs().max()) > 1e-3


def gradient(config: Any, names: list[str]) -> tuple[dict[str, Tensor], dict[str, float]]:
    """The gradient of one update on the rollouts of some tasks, and its metrics."""
    trainer = trainer_of(config)
    work, before = rollouts(config, trainer), weights(trainer)
    plain = torch.optim.SGD(trainer.trained.parameters(), lr=1.0)
    trainer.optimizers = [trainer.accelerator.prepare(plain)]
    trainer.schedules = [torch.optim.lr_scheduler.LambdaLR(plain, lambda _: 1.0)]
    values = trainer.update({name: work[name] for name in names})
    return {name: before[name] - after for name, after in weights(trainer).items()}, values


def test_two_tasks_train_one_policy_together(world: World, tmp_path: Path) -> None:
    changes = {"algorithm": {"num_iterations": 1, "beta": 0.0}, "max_grad_norm": 0.0}
    config = run_config(world, tmp_path, **changes)
    algorithm = {"name": "diffu_grpo", "num_iterations": 1, "beta": 0.0}
    config.tasks["other"] = task_config(world, algorithm=algorithm, num_prompts=1)
    first, _ = gradient(config, ["shapes"])
    second, _ = gradient(config, ["other"])
    config.tasks["other"].weight = 0.5
    together, values = gradient(config, ["shapes", "other"])
    for name, tensor in together.items():
        expected = first[name] + 0.5 * second[name]
        torch.testing.assert_close(tensor, expected, atol=1e-6, rtol=1e-4)
    assert values["shapes/ratio"] == values["other/ratio"] == 1.0
    assert values["shapes/entropy"] != values["other/entropy"]


def test_a_gradient_that_is_not_finite_stops_before_the_weights_change_and_names_the_prompts(
    world: World, tmp_path: Path
) -> None:
    config = run_config(world, tmp_path, algorithm={"num_iterations": 1})
    trainer = trainer_of(config)
    work = rollouts(config, trainer)
    _, batch = work["shapes"]
    batch.advantages[0] = float("nan")
    before = weights(trainer)
    named = rf"the loss is not finite for {batch.prompts[0].id} \(.*Lower learning_rate"
    with pytest.raises(DivergenceError, match=named):
        trainer.update(work)
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(trainer).items())


def test_compilation_without_a_compiler_is_refused_before_the_model_loads(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr("mmrl.models.load_policy", lambda *_, **__: pytest.fail("loaded"))
    config = run_config(world, tmp_path / "run", torch_compile=True)
    with pytest.raises(ConfigError, match="torch_compile.*C\\+\\+ compiler.*no-such-compiler"):
        train(config)
