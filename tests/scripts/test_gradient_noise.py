"""The figures of scripts/bench/gradient_noise.py on gradients whose signal and noise are known."""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from tests.by_path import load
from tests.mmrl.runs import rollouts, run_config, trainer_of, write_world

ROOT = Path(__file__).resolve().parents[2]
bench = load(ROOT / "scripts" / "bench", "gradient_noise")


def test_share_is_one_without_noise_and_the_ratio_of_squares_with_orthogonal_noise() -> None:
    signal = torch.zeros(4, 6)
    signal[:, 0] = 3.0
    noise = torch.cat((torch.zeros(4, 2), 4.0 * torch.eye(4)), 1)
    assert bench.share(bench.products(signal, signal)) == pytest.approx(1.0)
    assert bench.share(bench.products(signal + noise, signal)) == pytest.approx(9 / 25)
    assert bench.share(bench.products(noise, signal)) == pytest.approx(0.0)


def test_cosine_is_that_of_the_means_whatever_the_noise() -> None:
    one, other = torch.zeros(4, 7), torch.zeros(4, 7)
    one[:, 0] = 1.0
    other[:, 0], other[:, 1] = 1.0, 1.0
    noisy = other + torch.cat((torch.zeros(4, 3), 5.0 * torch.eye(4)), 1)
    assert bench.cosine(bench.products(one, noisy)) == pytest.approx(0.5**0.5)
    assert bench.cosine(bench.products(one, one)) == pytest.approx(1.0)


def in_parts(parts: dict[str, torch.Tensor]) -> Callable[[str], int]:
    """The place of a weight's part among the parts; equal ones keep their order."""
    return lambda name: list(parts).index(bench.part_of(name))


def test_parts_have_the_names_that_modules_to_train_takes(tmp_path: Path) -> None:
    trainer = trainer_of(run_config(write_world(tmp_path), tmp_path / "run"))
    parts = {bench.part_of(name) for name, _ in trainer.policy.network.named_parameters()}
    assert {"head", "embed", "norm", "blocks.*.attn.v", "blocks.*.mlp.down"} <= parts
    for part in ("head", "norm", "blocks.*.attn.v"):
        options = replace(trainer.config.model, modules_to_train=[part])
        trained = trainer_of(replace(trainer.config, model=options)).policy.network
        assert {bench.part_of(n) for n, p in trained.named_parameters() if p.requires_grad} == {
            part
        }


def test_what_is_compared_is_the_gradient_an_update_follows(tmp_path: Path) -> None:
    world = write_world(tmp_path)
    run = run_config(world, tmp_path / "run", algorithm={"num_iterations": 1, "beta": 0})
    settings = {f: getattr(run, f) for f in asdict(run)}
    config = bench.Config(**settings, batches=3, methods={"mine": {"name": "mask_grpo"}})
    [parts] = bench.gradients(config).values()
    rows = bench.of_blocks(parts)

    sgd = replace(run, optimizer="sgd", learning_rate=1.0, momentum=0.0, max_grad_norm=0.0)
    trainer = trainer_of(sgd)
    named = dict(trainer.policy.network.named_parameters())
    blocks = [named[name] for name in sorted(named, key=in_parts(parts)) if "blocks" in name]
    before = torch.cat([p.detach().flatten() for p in blocks])
    trainer.update(rollouts(sgd, trainer))
    step = before - torch.cat([p.detach().flatten() for p in blocks])
    assert rows.shape == (3, len(step)) and step.abs().max() > 1e-4
    torch.testing.assert_close(rows[0], step, atol=1e-6, rtol=1e-3)
    assert not torch.equal(rows[1], rows[2])
