"""Which devices compute bfloat16 natively, and what a run makes of it, says and plans."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mmrl.config import ConfigError
from mmrl.models.network.attention import ATTENTION, choose_attention
from mmrl.planning.plan import describe
from mmrl.runtime import computation
from mmrl.runtime.computation import choose, find_device, native_bfloat16
from mmrl.runtime.launch import join_processes, use_device
from mmrl.sft import train
from tests.mmrl.runs import World, run_config, trainer_of
from tests.mmrl.supervised_runs import config

CPU = torch.device("cpu")
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
    ("device", "capabilities", "native", "said"),
    [
        ("cpu", {"avx512_f": True, "avx512_bf16": False}, False, "no AVX512-BF16 or AMX-BF16"),
        ("cpu", {"amx_bf16": True}, True, "has AMX-BF16"),
        ("cpu", {"architecture": "aarch64", "bf16": True}, True, "has BF16"),
        ("cpu", {}, False, "no AVX512-BF16"),
        ("mps", {}, False, "mps"),
    ],
)
def test_a_cpu_is_native_by_its_instructions(
    monkeypatch: pytest.MonkeyPatch, device: str, capabilities: dict, native: bool, said: str
) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: capabilities)
    monkeypatch.setattr("torch.backends.mkldnn.is_available", lambda: True)
    found, why = native_bfloat16(torch.device(device))
    assert found is native and said in why


@pytest.mark.parametrize(
    ("wish", "natives", "dtype", "line"),
    [
        ("auto", [NATIVE, NATIVE], "float32", "bf16: true, this CPU has bfloat16"),
        ("auto", [PLAIN], "float32", "bf16: false, this CPU has none"),
        ("auto", [NATIVE, PLAIN], "float32", "bf16: false, process 1: this CPU has none"),
        ("auto", [NATIVE], "float64", "bf16: false, the weights are float64"),
        (False, [NATIVE], "float32", "bf16: false, as set"),
        (True, [PLAIN], "float32", "bf16: true, as set"),
    ],
)
def test_a_run_computes_in_bfloat16_where_all_its_devices_do_or_where_it_is_set(
    wish: Any, natives: list[tuple[bool, str]], dtype: str, line: str
) -> None:
    chosen = choose(wish, CPU, natives, dtype=dtype)
    assert chosen.reasons == (line,) and chosen.bf16 is ("true" in line)


@pytest.mark.parametrize(
    ("wish", "device", "dtype", "kernel"),
    [("auto", "cpu", torch.float32, "sdpa"), ("auto", "cpu", torch.bfloat16, "eager")]
    + [("auto", "cuda", torch.bfloat16, "sdpa"), ("eager", "cuda", torch.bfloat16, "eager")]
    + [("sdpa", "cpu", torch.bfloat16, "sdpa")],
)
def test_the_attention_kernel_follows_device_and_precision(
    wish: str, device: str, dtype: torch.dtype, kernel: str
) -> None:
    chosen, why = choose_attention(wish, device, dtype)
    assert chosen == kernel and why
    said = choose(dtype == torch.bfloat16, torch.device(device), [NATIVE], wish)
    assert said.reasons[1] == f"attn_implementation: {kernel}, {why}"


@pytest.mark.parametrize(("dtype", "kernel"), [(torch.float32, "sdpa"), (torch.bfloat16, "eager")])
def test_auto_attention_is_the_kernel_it_names(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, kernel: str
) -> None:
    q, k, v = torch.randn(3, 2, 2, 9, 8, dtype=dtype)
    expected = ATTENTION[kernel](q, k, v, None)
    for other in {"sdpa", "eager"} - {kernel}:
        monkeypatch.setitem(ATTENTION, other, lambda *_: pytest.fail("the other kernel"))
    assert torch.equal(ATTENTION["auto"](q, k, v, None), expected)


@pytest.mark.parametrize(
    ("found", "dtype"), [(NATIVE, torch.bfloat16), (PLAIN, torch.float32)], ids=["native", "plain"]
)
def test_the_policy_its_reference_and_the_value_model_compute_as_the_device_does(
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: tuple[bool, str],
    dtype: torch.dtype,
) -> None:
    on(found, monkeypatch)
    method = {"name": "trace_rl", "value": {}, "kl_to": "reference", "beta": 0.1}
    trainer = trainer_of(run_config(world, tmp_path, algorithm=method, bf16="auto"))
    assert trainer.value is not None
    for network in (trainer.policy.network, trainer.frozen, trainer.value):
        assert network is not None and dtypes_inside(network) == {dtype}
    assert trainer.config.bf16 is found[0]


def test_a_run_says_once_how_it_computes_and_warns_where_that_has_changed(
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
    assert "the checkpoint is of a run with bf16=false" in log.read_text()


def test_the_plan_follows_the_device(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = run_config(world, tmp_path / "run", bf16="auto", dry_run=True)
    planned.tasks["shapes"].rewards = [{"name": "shapes", "mode": "partial"}]
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda **_: None)
    for found in (NATIVE, PLAIN):
        on(found, monkeypatch)
        assert f"computed    bf16: {str(found[0]).lower()}, {found[1]}" in str(describe(planned))


def test_a_mac_and_the_setting_cpu_leave_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"type": "mps"}
    found = lambda **_: torch.device(here["type"])  # noqa: E731
    monkeypatch.setattr(torch.accelerator, "current_accelerator", found)
    assert find_device("auto") == CPU and join_processes().device == CPU
    with pytest.raises(ConfigError, match=r"device is 'mps'.*Metal has no float64"):
        find_device("mps")
    here["type"] = "cuda"
    assert find_device("auto").type == "cuda"
    monkeypatch.setenv("ACCELERATE_USE_CPU", "false")  # restored after the test
    use_device("cpu")
    assert find_device("auto") == CPU
