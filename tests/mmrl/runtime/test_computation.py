"""Runs whose precision follows the device: what they compute in, say, keep and estimate."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from torch import nn

from mmrl.planning.memory import estimate
from mmrl.planning.plan import describe
from mmrl.pretrained.known import known_config
from mmrl.rl_config import RLConfig
from mmrl.rollouts.tasks import Task
from mmrl.runtime import computation
from mmrl.sft import train
from tests.mmrl.runs import run_config, trainer_of
from tests.mmrl.supervised_runs import config

NATIVE, PLAIN = (True, "this CPU has bfloat16"), (False, "this CPU has none")


def on(found: tuple[bool, str], patch: pytest.MonkeyPatch) -> None:
    """A machine with or without bfloat16."""
    patch.setattr(computation, "native_bfloat16", lambda _: found)


def dtypes_inside(network: nn.Module) -> set[torch.dtype]:
    """What the linear layers of a network compute in."""
    found: set[torch.dtype] = set()
    hooks = [
        module.register_forward_hook(lambda _, __, out: found.add(out.dtype))
        for module in network.modules()
        if isinstance(module, nn.Linear)
    ]
    everywhere = torch.ones(1, 4, dtype=torch.bool)
    network(input_ids=everywhere.long(), attention_mask=None, positions=everywhere)
    for hook in hooks:
        hook.remove()
    return found


@pytest.mark.parametrize(
    ("found", "dtype"), [(NATIVE, torch.bfloat16), (PLAIN, torch.float32)], ids=["native", "plain"]
)
def test_the_policy_its_reference_and_the_value_model_compute_as_the_device_does(
    world: SimpleNamespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: tuple[bool, str],
    dtype: torch.dtype,
) -> None:
    on(found, monkeypatch)
    method = {"name": "trace_rl", "value": {}, "kl_to": "reference", "beta": 0.1}
    trainer = trainer_of(run_config(world, tmp_path, algorithm=method, bf16="auto"))
    assert trainer.value is not None
    for network in (trainer.policy.network, trainer.frozen, trainer.value.network):
        assert network is not None and dtypes_inside(network) == {dtype}
    assert trainer.config.bf16 is found[0]


def test_a_run_goes_on_in_another_precision_with_a_warning(
    world: SimpleNamespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = run_config(world, tmp_path, bf16="auto")
    on(NATIVE, monkeypatch)
    trainer_of(settings).save(tmp_path)
    trainer_of(settings).load(tmp_path)
    assert not caplog.text
    on(PLAIN, monkeypatch)
    trainer_of(settings).load(tmp_path)
    assert "run in bfloat16 and is resumed in float32" in caplog.text and "bf16=true" in caplog.text


def test_a_run_says_once_how_it_computes_and_keeps_what_was_asked_for(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(PLAIN, monkeypatch)
    train(config(images, tmp_path / "run", bf16="auto"))
    log, said = tmp_path / "run" / "train.log", "bf16: false, this CPU has none"
    assert log.read_text().count(said) == 1
    assert said in (tmp_path / "run" / "env.txt").read_text().splitlines()
    assert "bf16: auto" in (tmp_path / "run" / "config.yaml").read_text().splitlines()
    on(NATIVE, monkeypatch)
    again = config(images, tmp_path / "run", bf16="auto", max_steps=6)
    again.resume_from_checkpoint = "auto"
    train(again)
    assert "bf16: true, this CPU has bfloat16" in log.read_text()
    assert "run in float32 and is resumed in bfloat16" in log.read_text()


def test_all_processes_take_float32_where_one_of_them_has_nothing_else(
    world: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(NATIVE, monkeypatch)
    monkeypatch.setattr(computation, "gather_object", lambda own: [*own, PLAIN])
    settings = run_config(world, tmp_path, bf16="auto")
    chosen = computation.choose_together(settings, Accelerator(cpu=True))
    assert chosen.reasons[0] == "bf16: false, process 1: this CPU has none"
    assert trainer_of(settings).config.bf16 is False


def test_the_plan_and_the_memory_estimate_follow_the_device(
    world: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = run_config(world, tmp_path / "run", bf16="auto")
    settings.tasks["shapes"].rewards = [{"name": "shapes", "mode": "partial"}]
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda **_: None)
    updates = []
    for found in (NATIVE, PLAIN):
        on(found, monkeypatch)
        settings.verbose, settings.dry_run = True, True
        said = str(describe(settings))
        assert f"computed    bf16: {str(found[0]).lower()}, {found[1]}" in said
        assert "bf16: auto" in said.splitlines()
        updates.append(update_bytes(settings))
    assert updates[0] < updates[1]


def update_bytes(settings: RLConfig) -> float:
    tasks = [Task(name, options, dry=True) for name, options in settings.tasks.items()]
    return estimate(settings, known_config(settings.model.path) or {}, tasks).device["update"]
