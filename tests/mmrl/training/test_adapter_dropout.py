"""Dropout of an adapter: what is dropped, and that it depends on the row and the step alone."""

import copy
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from peft.tuners.lora import Linear
from torch import Generator, Tensor
from torch.nn.functional import pad as pad_with

from mmrl.pretrained.model_config import LoraConfig
from mmrl.rl_config import RLConfig
from mmrl.training.adapter import InPlaceLora, add_adapter
from mmrl.training.adapter_dropout import RowDraws, RowDropout, adapter_dropout
from mmrl.training.trainer import Trainer
from tests.mmrl.runs import World, rollouts, run_config, trainer_of
from tests.models.networks import small_network

IDS = torch.randint(40, (4, 12), generator=Generator().manual_seed(1))
DROPOUT = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.3}


def close(one: Tensor, other: Tensor) -> None:
    """Equal up to the rounding of float32 in other shapes; another draw differs a hundred times as
    much."""
    torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-5)


def move(model: torch.nn.Module) -> None:
    """Move the adapter from its start, where dropout has no effect."""
    draw = Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1, generator=draw)


def adapted(**changes: object) -> PeftModel:
    model = add_adapter(small_network(), LoraConfig(**{**DROPOUT, **changes}), seed=0).eval()
    move(model)
    return model  # type: ignore[return-value]


def logits(model: PeftModel, ids: Tensor, *names: int | str) -> Tensor:
    with adapter_dropout(model, *names), torch.no_grad():
        return model(input_ids=ids).logits


def test_as_many_entries_are_dropped_as_was_asked_and_the_mean_stays() -> None:
    draws = RowDraws([])
    draws.rows = torch.tensor([5, 6], dtype=torch.int32)
    ones = torch.ones(2, 40, 500)
    found = [RowDropout(0.3, number, draws)(ones) for number in (0, 200)]
    for each in found:
        assert each.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
        assert float((each == 0).float().mean()) == pytest.approx(0.3, abs=0.01)
    kept = [(each != 0).flatten().float() for each in (*found[0], *found[1])]
    assert torch.corrcoef(torch.stack(kept)).fill_diagonal_(0).abs().max() < 0.03


@pytest.mark.parametrize("variant", [{}, {"use_dora": True}, {"use_rslora": True}])
def test_a_row_is_dropped_alike_in_every_batch_and_otherwise_in_another_step(variant: dict) -> None:
    model = adapted(**variant)
    whole = logits(model, IDS, 0, "step", 1)
    assert torch.equal(whole, logits(model, IDS, 0, "step", 1))
    close(logits(model, IDS[2:3], 0, "step", 1), whole[2:3])
    close(logits(model, IDS.flip(0), 0, "step", 1), whole.flip(0))
    others = [logits(model, IDS, 0, "step", 2), logits(model, IDS)]
    with torch.no_grad():
        others.append(model(input_ids=IDS).logits)  # outside, nothing is dropped
    assert all((other - whole).abs().max() > 1e-3 for other in others)
    assert not model.training and not any(module.training for module in model.modules())


@pytest.mark.parametrize("left", [True, False])
def test_padding_changes_no_draw(left: bool) -> None:
    model, asked = adapted(), torch.ones(4, 12, dtype=torch.bool)
    asked[:, 7:] = False
    pad = (3, 0) if left else (0, 3)
    with adapter_dropout(model, 1), torch.no_grad():
        alone = model(input_ids=IDS, positions=asked).logits
        padded = model(
            input_ids=pad_with(IDS, pad, value=7),
            attention_mask=pad_with(torch.ones_like(IDS), pad),
            positions=pad_with(asked, pad),
        ).logits
    close(padded, alone)


@pytest.mark.parametrize("variant", [{}, {"use_dora": True}])
def test_recomputed_blocks_drop_the_same_entries(variant: dict) -> None:
    found = []
    for checkpointing in (False, True):
        model = adapted(**variant)
        model.get_base_model().gradient_checkpointing = checkpointing  # type: ignore[union-attr]
        losses = []
        for step in range(2):  # both graphs are alive when the first goes backward
            with adapter_dropout(model, step):
                losses.append(model(input_ids=IDS).logits.square().mean())
        sum(losses).backward()  # type: ignore[union-attr]
        found.append([p.grad for p in model.parameters() if p.requires_grad])
    for plain, again in zip(*found, strict=True):
        assert plain is not None and torch.equal(plain, again)


def still(world: World, output: Path, **changes: object) -> RLConfig:
    """A run whose policy does not move."""
    values = {"warmup_steps": 1000, "learning_rate": 1e-30, "lora": DROPOUT}
    return run_config(world, output, **{**values, **changes})


def first_update(config: RLConfig) -> tuple[Trainer, dict[str, float]]:
    trainer = trainer_of(config)
    work = rollouts(config, trainer)
    move(trainer.trained)
    return trainer, trainer.update(work)


def test_ratios_are_one_and_a_synchronised_reference_has_no_divergence(
    world: World, tmp_path: Path
) -> None:
    algorithm = {"num_iterations": 2, "beta": 0.1, "num_draws": 2}
    changes = {"sync_ref_model": True, "ref_model_mixup_alpha": 1.0, "ref_model_sync_steps": 1}
    config = still(world, tmp_path, algorithm=algorithm, **changes)
    trainer, values = first_update(config)
    assert (values["ratio"], values["approx_kl"]) == (1.0, 0.0) and values["kl"] > 0
    values = trainer.update(rollouts(config, trainer))
    assert (values["ratio"], values["kl"]) == (1.0, 0.0)


THREE = torch.randint(40, (3, 12), generator=Generator().manual_seed(1))


@pytest.fixture
def moved() -> PeftModel:
    """A network whose adapters have moved from their start."""
    model = add_adapter(small_network(qkv_bias=True), LoraConfig(r=4), seed=0)
    draw = Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1, generator=draw)
    return model


def with_peft_layers(model: PeftModel) -> PeftModel:
    """The same model with peft's own layers."""
    plain = copy.deepcopy(model)
    for module in plain.modules():
        if isinstance(module, InPlaceLora):
            module.__class__ = Linear
    return plain


def gradients(model: PeftModel) -> list[Tensor]:
    model(input_ids=THREE).logits.square().mean().backward()
    return [p.grad for p in model.parameters() if p.requires_grad]


def test_outputs_and_gradients_are_those_of_peft(moved: PeftModel) -> None:
    plain = with_peft_layers(moved)
    difference = moved(input_ids=THREE).logits - plain(input_ids=THREE).logits
    assert difference.abs().max() < 1e-4
    for ours, expected in zip(gradients(moved), gradients(plain), strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-3)


@torch.no_grad()
def test_the_adapter_can_be_switched_off_and_merged(moved: PeftModel) -> None:
    with moved.disable_adapter():
        off = moved(input_ids=THREE).logits
    assert torch.equal(off, small_network(qkv_bias=True)(input_ids=THREE).logits)
    on = moved(input_ids=THREE).logits
    assert (on - off).abs().max() > 1e-2
    moved.merge_adapter()
    torch.testing.assert_close(moved(input_ids=THREE).logits, on, atol=1e-4, rtol=0)
