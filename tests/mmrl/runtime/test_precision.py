"""Which devices compute bfloat16 natively, what a run makes of it, and what it says."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmrl.config import ConfigError
from mmrl.models.network.attention import ATTENTION, choose_attention
from mmrl.runtime.computation import choose
from mmrl.runtime.precision import autocast_forward, native_bfloat16, warn_of_change

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
NATIVE, PLAIN = (True, "this CPU has AVX512-BF16 instructions"), (False, "this CPU has none")
AUTO: Any = SimpleNamespace(bf16="auto", torch_compile="auto")


def settings(**changes: object) -> Any:
    return SimpleNamespace(**{**vars(AUTO), **changes})


def pretend(patch: pytest.MonkeyPatch, onednn: str = "", **capabilities: object) -> None:
    """A CPU with these capabilities, where the user limits oneDNN to an instruction set."""
    patch.setattr("torch.cpu.get_capabilities", lambda: capabilities, raising=False)
    patch.setattr("torch.backends.mkldnn.is_available", lambda: True)
    patch.delenv("DNNL_MAX_CPU_ISA", raising=False)
    patch.setenv("ONEDNN_MAX_CPU_ISA", onednn)


@pytest.mark.parametrize(
    ("capabilities", "onednn", "native", "said"),
    [
        ({"avx2": True}, "", False, "no AVX512-BF16 or AMX-BF16"),
        ({"avx512_f": True, "avx512_bf16": False}, "", False, "no AVX512-BF16"),
        ({"avx512_bf16": True}, "", True, "has AVX512-BF16"),
        ({"amx_bf16": True}, "", True, "has AMX-BF16"),
        ({"avx512_bf16": True, "amx_bf16": True}, "AVX2", False, "ONEDNN_MAX_CPU_ISA=AVX2"),
        ({"avx512_bf16": True}, "avx512_core", False, "ONEDNN_MAX_CPU_ISA=avx512_core"),
        ({"avx512_bf16": True}, "AVX512_CORE_BF16", True, "has AVX512-BF16"),
        ({"architecture": "aarch64", "bf16": True}, "", True, "has BF16"),
        ({"architecture": "aarch64", "bf16": False}, "", False, "no BF16"),
        ({}, "", False, "no AVX512-BF16"),
    ],
)
def test_a_cpu_is_native_by_its_instructions_and_by_what_onednn_may_use_of_them(
    monkeypatch: pytest.MonkeyPatch, capabilities: dict, onednn: str, native: bool, said: str
) -> None:
    pretend(monkeypatch, onednn, **capabilities)
    found, why = native_bfloat16(CPU)
    assert found is native and said in why


def test_a_torch_without_onednn_computes_no_bfloat16_natively(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend(monkeypatch, avx512_bf16=True)
    monkeypatch.setattr("torch.backends.mkldnn.is_available", lambda: False)
    assert native_bfloat16(CPU) == (
        False,
        "this torch has no oneDNN to use the AVX512-BF16 instructions of this CPU",
    )


@pytest.mark.parametrize(
    ("capability", "native"), [((7, 5), False), ((8, 0), True), ((9, 0), True)]
)
def test_cuda_is_native_from_compute_capability_8(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], native: bool
) -> None:
    monkeypatch.setattr("torch.version.hip", None)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda _: "Some GPU")
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: capability)
    found, why = native_bfloat16(CUDA)
    assert found is native and why.startswith(f"Some GPU has compute capability {capability[0]}.")


def test_a_device_of_which_torch_does_not_tell_counts_as_without() -> None:
    found, why = native_bfloat16(torch.device("mps"))
    assert not found and "mps" in why


@pytest.mark.parametrize(
    ("wish", "natives", "bf16", "line"),
    [
        ("auto", [NATIVE], True, "bf16: true, this CPU has AVX512-BF16 instructions"),
        ("auto", [PLAIN], False, "bf16: false, this CPU has none"),
        ("auto", [NATIVE, PLAIN, NATIVE], False, "bf16: false, process 1: this CPU has none"),
        ("auto", [NATIVE, NATIVE], True, "bf16: true, this CPU has AVX512-BF16 instructions"),
        (False, [NATIVE], False, "bf16: false, as set"),
        (True, [PLAIN], True, "bf16: true, as set"),
    ],
)
def test_a_run_computes_in_bfloat16_where_all_its_devices_do_or_where_it_is_set(
    wish: Any, natives: list[tuple[bool, str]], bf16: bool, line: str
) -> None:
    chosen = choose(settings(bf16=wish), CPU, natives)
    assert (chosen.bf16, chosen.reasons[0]) == (bf16, line)


@pytest.mark.parametrize(
    ("wish", "natives", "dtype", "warned"),
    [
        (True, [PLAIN], "float32", "bf16 is true, but this CPU has none"),
        (True, [NATIVE, PLAIN], "float32", "bf16 is true"),
        ("auto", [PLAIN], "bfloat16", "model.dtype is bfloat16"),
        ("auto", [PLAIN], "float32", ""),
        (True, [NATIVE], "bfloat16", ""),
    ],
)
def test_bfloat16_on_a_cpu_without_it_is_warned_of_with_the_measured_slowdown(
    wish: Any,
    natives: list[tuple[bool, str]],
    dtype: str,
    warned: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        choose(settings(bf16=wish), CPU, natives, dtype=dtype).log()
    said = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(said) == bool(warned)
    if warned:
        assert said[0].startswith(warned) and "9 times as long" in said[0] and "Set " in said[0]


def test_weights_in_float64_are_computed_with_in_float64() -> None:
    chosen = choose(AUTO, CPU, [NATIVE], dtype="float64")
    assert not chosen.bf16 and chosen.reasons[0] == "bf16: false, the weights are float64"


@pytest.mark.parametrize("key", ["bf16", "torch_compile"])
def test_a_setting_that_is_no_choice_is_refused_from_python_too(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} is 'maybe'.*auto, true or false"):
        choose(settings(**{key: "maybe"}), CPU, [NATIVE])


@pytest.mark.parametrize(
    ("wish", "device", "dtype", "kernel"),
    [
        ("auto", "cpu", torch.float32, "sdpa"),
        ("auto", "cpu", torch.bfloat16, "eager"),
        ("auto", "cuda", torch.bfloat16, "sdpa"),
        ("eager", "cuda", torch.bfloat16, "eager"),
        ("sdpa", "cpu", torch.bfloat16, "sdpa"),
    ],
)
def test_the_attention_kernel_follows_device_and_precision(
    wish: str, device: str, dtype: torch.dtype, kernel: str
) -> None:
    chosen, why = choose_attention(wish, device, dtype)
    assert chosen == kernel and why
    said = choose(settings(bf16=dtype == torch.bfloat16), torch.device(device), [NATIVE], wish)
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


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_auto_compiles_nothing_and_says_why(device: str) -> None:
    chosen = choose(AUTO, torch.device(device), [NATIVE])
    assert not chosen.torch_compile and chosen.reasons[-1].startswith("torch_compile: false, it")
    assert choose(settings(torch_compile=True), CPU, [NATIVE]).torch_compile


def test_autocast_computes_products_in_bfloat16_and_returns_float32() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            inside.append(super().forward(x))
            return inside[-1]

    inside: list[Tensor] = []
    module = Doubled(4, 4)
    assert module(torch.ones(1, 4)).dtype == inside[-1].dtype == torch.float32
    autocast_forward(module, CPU)
    assert module(torch.ones(1, 4)).dtype == torch.float32
    assert inside[-1].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("before", "now", "warned"),
    [(True, False, True), (False, True, True), (True, True, False), (None, True, False)],
)
def test_a_change_of_precision_is_warned_of_where_the_checkpoint_says_its_own(
    before: bool | None, now: bool, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_change(before, now)
    assert ("bf16=" in caplog.text) is warned
