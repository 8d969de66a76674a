"""Precision and attention kernel of a run, where `auto` follows the device.

All processes of a run compute alike: in bfloat16 only where every device has it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from mmrl.config import check
from mmrl.models.network.attention import choose_attention
from mmrl.runtime.placement import Placement
from mmrl.runtime.precision import native_bfloat16


class Settings(Protocol):
    """The settings read here."""

    bf16: Literal["auto", True, False]
    torch_compile: bool


T = TypeVar("T", bound=Settings)


@dataclass(frozen=True)
class Computation:
    """The choices for a run.

    Attributes:
        bf16: whether the network runs under bfloat16 autocast.
        torch_compile: whether its blocks are compiled.
        reasons: a line for each choice.
    """

    bf16: bool
    torch_compile: bool
    reasons: tuple[str, ...] = ()


def choose(
    settings: Settings,
    device: torch.device | None = None,
    natives: Sequence[tuple[bool, str]] = (),
    attn_implementation: str | None = None,
    dtype: str = "float32",
) -> Computation:
    """Choose how a run computes.

    Args:
        settings: of the run.
        device: of this process; None for the device of a run with one process.
        natives: `native_bfloat16` of every process; empty for this device alone.
        attn_implementation: the setting; None where the run has none.
        dtype: name of the dtype of the weights.

    Raises:
        ConfigError: a precision that is neither `auto` nor true or false.
    """
    if device is None:
        found = torch.accelerator.current_accelerator(check_available=True)
        device = found or torch.device("cpu")
    bf16, why = _choose_precision(settings.bf16, natives or [native_bfloat16(device)], dtype)
    reasons = [f"bf16: {str(bf16).lower()}, {why}"]
    if attn_implementation is not None:
        product = torch.bfloat16 if bf16 else getattr(torch, dtype)
        kernel, why = choose_attention(attn_implementation, device.type, product)
        reasons.append(f"attn_implementation: {kernel}, {why}")
    return Computation(bf16, settings.torch_compile, tuple(reasons))


def choose_planned(
    settings: Settings, placement: Placement, kernel: str | None = None, dtype: str = "float32"
) -> Computation:
    """`choose` for the devices of a plan, which need not be here."""
    named, chosen = placement.named, {"attn_implementation": kernel, "dtype": dtype}
    if named is None and (placement.device == "cpu" or torch.accelerator.is_available()):
        return choose(settings, **chosen)
    why = f"{named.name if named else 'a GPU'} computes it natively"
    native = (True, why) if named is None or named.bf16 else (False, f"{named.name} emulates it")
    return choose(settings, torch.device("cuda"), [native], **chosen)


def choose_together(
    settings: Settings, accelerator: Accelerator, kernel: str | None = None, dtype: str = "float32"
) -> Computation:
    """`choose` for a run of several processes; every process calls this."""
    natives = gather_object([native_bfloat16(accelerator.device)])
    return choose(settings, accelerator.device, natives, kernel, dtype)


def follow_device(settings: T, accelerator: Accelerator, dtype: str = "float32") -> T:
    """Replace `auto` in the settings by the choice for the device; every process calls this."""
    if settings.bf16 != "auto":
        return settings
    chosen: dict[str, Any] = {"bf16": choose_together(settings, accelerator, dtype=dtype).bf16}
    return replace(settings, **chosen)  # type: ignore[type-var]


def _choose_precision(
    wish: Literal["auto", True, False], natives: Sequence[tuple[bool, str]], dtype: str
) -> tuple[bool, str]:
    """Whether a run computes in bfloat16, and the reason."""
    check(wish in ("auto", True, False), "bf16", wish, "auto, true or false")
    if wish != "auto":
        return wish, "as set"
    if dtype == "float64":
        return False, "the weights are float64"
    lacking = [rank for rank, (native, _) in enumerate(natives) if not native]
    where = f"process {lacking[0]}: " if lacking and len(natives) > 1 else ""
    return not lacking, where + natives[lacking[0] if lacking else 0][1]
