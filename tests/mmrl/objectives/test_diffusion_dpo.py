"""Diffusion-DPO: worked numbers, a public code, its start, its gradient, and what a run learns.

`tests/fixtures/flow/dpo.safetensors` has two preferences, their velocities, and the loss and its
gradient by verl-project/verl-omni@a1139bafffb5, `DPOLoss` of `diffusion_algos.py`, with beta 100.
"""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from PIL import Image
from safetensors.torch import load_file

from mmrl.config import ConfigError
from mmrl.objectives import find_objective
from mmrl.objectives.diffusion_dpo import DiffusionDPO, compare, measure
from mmrl.planning.sft_plan import describe
from mmrl.sft import SFTConfig, train
from tests.mmrl.objectives.flow_pipelines import TEXTS, build, write_pairs, write_start
from tests.mmrl.runs import metrics, same_weights
from tests.pictures import png

CASE = load_file(Path(__file__).parents[2] / "fixtures" / "flow" / "dpo.safetensors")
WAYS = pytest.mark.parametrize("lora", [None, {"r": 4, "target_modules": ["q", "v", "o", "down"]}])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline with weights, and preferences for red over blue."""
    path = tmp_path_factory.mktemp("dpo")
    write_start(path)
    write_pairs(path / "pairs.parquet")
    flow, source = build(path), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _, parameter in sorted(flow.whole.named_parameters()):
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=source))
    flow.save(path / "whole")
    write_preferences(path / "preferences.parquet")
    return path


def write_preferences(path: Path) -> None:
    """Rows as Pick-a-Pic has them; the fifth has no preference, and the sixth no labels."""
    rows = [
        {"caption": text, "jpg_0": draw(first), "jpg_1": draw(second), "label_0": label}
        for text, first, second, label in zip(
            (*TEXTS, "a ring"),
            ("red", "blue", "red", "blue", "red", "red"),
            ("blue", "red", "blue", "red", "blue", "blue"),
            (1.0, 0.0, 1.0, 0.0, 0.5, None),
            strict=True,
        )
    ]
    for row in rows:
        given: Any = row["label_0"]
        row |= {"label_1": None if given is None else 1 - given, "has_label": given is not None}
    Dataset.from_list(rows).to_parquet(str(path))


def draw(color: str) -> bytes:
    return png(Image.new("RGB", (8, 8), color))


def options(folder: Path, **changes: Any) -> dict[str, Any]:
    given = {"data": str(folder / "preferences.parquet"), "model": str(folder / "whole")}
    return {**given, "max_prompt_length": 2, "save_dtype": "float32", "beta": 20.0, **changes}


def objective(
    folder: Path, batch_size: int = 4, deferred: bool = False, **changes: Any
) -> DiffusionDPO:
    _, config = find_objective({"name": "diffusion_dpo", **options(folder, **changes)})
    return DiffusionDPO(config, 0, batch_size, deferred=deferred)


def run(folder: Path, output: Path, lora: Any, **changes: Any) -> Path:
    data = str(folder / "preferences.parquet")
    objective = {"name": "diffusion_dpo", **options(folder, lora=lora, eval_data=data)}
    values = {"output_dir": str(output), "objective": objective, "per_device_train_batch_size": 4}
    values |= {"learning_rate": 1e-2 if lora else 3e-3, "lr_scheduler_type": "constant"}
    values |= {"logging_steps": 1, "bf16": False, "max_steps": 4, "save_steps": 2, "eval_steps": 2}
    return train(SFTConfig(**{**values, **changes}))


def test_the_worked_example() -> None:
    noise = torch.tensor([1, -0.3, 0.5, -0.8])
    clean = torch.tensor([[0.2, -0.4, 0.1, 0.9], [0.1, -0.2, 0.3, 0.5]])
    first = noise - clean[0]
    old = first + torch.tensor([0.1, -0.2, 0.05, 0.3])
    velocity = (old + torch.tensor([0.02, 0.01, -0.03, 0.04])).expand(2, 4)
    reference = (first + torch.tensor([0.12, -0.18, 0.02, 0.25])).expand(2, 4)
    errors, start = (measure(each, noise - clean) for each in (velocity, reference))
    loss, found = compare(errors, start, 10.0)
    assert float(found["rewards/margins"]) == pytest.approx(-0.095, abs=1e-6)
    assert float(loss) == pytest.approx(0.74177488, abs=1e-6)


def test_loss_and_gradient_are_those_of_the_public_code() -> None:
    order = [0, 2, 1, 3]  # which has the images of a preference beside each other
    velocity = CASE["v"].requires_grad_()
    target = (CASE["noise"] - CASE["x0"])[order]
    errors, start = measure(velocity[order], target), measure(CASE["ref"][order], target)
    loss, found = compare(errors, start, 100.0)
    torch.testing.assert_close(loss, CASE["loss"], rtol=1e-6, atol=1e-6)
    [gradient] = torch.autograd.grad(loss, velocity)
    torch.testing.assert_close(gradient, CASE["grad_v"], rtol=1e-5, atol=1e-7)
    known = {"chosen": -0.11740031, "rejected": -0.10932511, "margins": -0.0080752}
    for name, value in {**known, "accuracies": 0.5}.items():
        assert float(found[f"rewards/{name}"]) == pytest.approx(value, abs=1e-5)


@WAYS
def test_the_loss_of_the_start_is_log_2_and_the_gradient_has_a_closed_form(
    folder: Path, lora: Any
) -> None:
    dpo = objective(folder, lora=lora)
    batch = dpo.batch(0, 0, 1)
    assert dpo.loss(batch)[0].item() == pytest.approx(math.log(2), abs=1e-6)
    trained = [parameter for parameter in dpo.whole.parameters() if parameter.requires_grad]
    source = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in trained:
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=source))
    start = measure(load_start(folder, batch), batch.velocity)
    errors = measure(dpo.module(**batch.inputs), batch.velocity)
    margins = -10 * ((errors - start)[:4] - (errors - start)[4:]).detach()
    assert margins.abs().min() > 1e-3
    loss, _ = dpo.loss(batch)
    torch.testing.assert_close(loss, (1 + (-margins).exp()).log().mean())
    weights = 10 * torch.sigmoid(-margins) / 4
    known = torch.autograd.grad((torch.cat([weights, -weights]) * errors).sum(), trained)
    for found, each in zip(torch.autograd.grad(loss, trained), known, strict=True):
        torch.testing.assert_close(found, each, rtol=1e-4, atol=1e-6)


@torch.no_grad()
def load_start(folder: Path, batch: Any) -> torch.Tensor:
    return objective(folder).module(**batch.inputs)


def test_the_preferred_image_comes_first_and_both_get_one_noise(folder: Path) -> None:
    dpo = objective(folder)
    assert dpo.examples_per_epoch == 4 and "4 preferences" in dpo.outline(dpo.config)[1]
    for pair in dpo.data[""].take(range(4)):
        assert pair.image.open().getpixel((0, 0)) == (255, 0, 0)
        assert pair.source.open().getpixel((0, 0)) == (0, 0, 255)
    inputs, velocity = dpo.batch(1, 0, 1)
    sigma = inputs["sigma"][:, None, None, None]
    clean = inputs["latents"] - sigma * velocity
    noise = clean + velocity
    torch.testing.assert_close(noise[:4], noise[4:])
    assert torch.equal(sigma[:4], sigma[4:]) and torch.equal(*inputs["pooled"].chunk(2))
    assert (clean[:4] - clean[4:]).abs().min(0).values.max() > 0.01
    torch.testing.assert_close(clean[:4], clean[:1].expand_as(clean[:4]), rtol=1e-4, atol=1e-4)


def test_examples_do_not_depend_on_the_number_of_processes(folder: Path) -> None:
    whole = objective(folder).batch(3, 0, 1)
    parts = [objective(folder, batch_size=2).batch(3, rank, 2) for rank in (0, 1)]
    halves = [each.velocity.chunk(2) for each in parts]
    assert torch.equal(whole.velocity, torch.cat([*map(torch.cat, zip(*halves, strict=True))]))


@WAYS
def test_a_run_makes_preferred_images_more_likely_and_resumes_exactly(
    folder: Path, tmp_path: Path, lora: Any
) -> None:
    whole = run(folder, tmp_path / "whole", lora, max_steps=16, save_steps=8, eval_steps=8)
    lines = metrics(whole)
    first, last = lines[0], lines[-1]
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert last["eval/loss"] < 0.5 and last["eval/rewards/accuracies"] > 0.8
    assert last["eval/rewards/chosen"] > last["eval/rewards/rejected"]
    again = run(
        folder,
        tmp_path / "again",
        lora,
        **{"max_steps": 16, "save_steps": 8, "eval_steps": 8},
        resume_from_checkpoint=str(whole / "checkpoints" / "8"),
    )
    assert metrics(again)[-8:] == lines[-8:]
    part = "transformer" if lora is None else "."
    assert same_weights(again / "final" / part, whole / "final" / part)


def test_what_has_no_frozen_start_is_refused(folder: Path, tmp_path: Path) -> None:
    given = {"lora": {"r": 2}, "modules_to_train": ["blocks.*"]}
    with pytest.raises(ConfigError, match="objective.modules_to_train"):
        objective(folder, **given)
    adapter = run(folder, tmp_path / "run", {"r": 2}, max_steps=1) / "final"
    with pytest.raises(ConfigError, match="objective.model"):
        objective(folder, model=str(adapter), lora={"r": 2})
    with pytest.raises(ConfigError, match="share one copy"):
        objective(folder, deferred=True)
    settings = {"name": "diffusion_dpo", **options(folder, label_columns=["label_0", "label_2"])}
    with pytest.raises(ConfigError, match="larger one of the preferred"):
        describe(SFTConfig(output_dir=str(tmp_path / "other"), objective=settings))
