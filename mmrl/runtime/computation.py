"""Precision, attention kernel and compilation of a run, where `auto` follows the device.

All processes of a run compute alike: in bfloat16 only where every device has it.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from mmrl.models.network.attention import choose_attention
from mmrl.runtime.compilation import choose_compilation
from mmrl.runtime.placement import Placement
from mmrl.runtime.precision import choose_precision, explain_slowness, native_bfloat16

logger = logging.getLogger(__name__)


class Settings(Protocol):
    """The settings read here."""

    bf16: Literal["auto", True, False]
    torch_compile: Literal["auto", True, False]


T = TypeVar("T", bound=Settings)


@dataclass(frozen=True)
class Computation:
    """The choices for a run, with reasons.

    Attributes:
        bf16: whether the network runs under bfloat16 autocast.
        torch_compile: whether its blocks are compiled.
        reasons: a line for each choice.
        warning: about a slow choice; empty without.
    """

    bf16: bool
    torch_compile: bool
    reasons: tuple[str, ...]
    warning: str

    @property
    def short(self) -> list[str]:
        """The choices, the precision with its reason; and the warning if there is one."""
        first, *others = self.reasons
        choices = "; ".join([first, *(reason.partition(",")[0] for reason in others)])
        return [choices, *([self.warning] if self.warning else [])]

    def log(self) -> None:
        """Write the reasons to the log, and the warning."""
        for line in self.reasons:
            logger.info("%s", line)
        if self.warning:
            logger.warning("%s", self.warning)


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
        ConfigError: a setting that is neither `auto` nor true or false.
    """
    if device is None:
        found = torch.accelerator.current_accelerator(check_available=True)
        device = found or torch.device("cpu")
    natives = natives or [native_bfloat16(device)]
    bf16, why_bf16 = choose_precision(settings.bf16, natives, dtype)
    compiled, why_compiled = choose_compilation(settings.torch_compile, device)
    choices = {"bf16": (_word(bf16), why_bf16)}
    if attn_implementation is not None:
        product = torch.bfloat16 if bf16 else getattr(torch, dtype)
        kernel = choose_attention(attn_implementation, device.type, product)
        choices["attn_implementation"] = kernel
    choices["torch_compile"] = (_word(compiled), why_compiled)
    reasons = tuple(f"{key}: {choice}, {why}" for key, (choice, why) in choices.items())
    return Computation(bf16, compiled, reasons, explain_slowness(bf16, dtype, device, natives))


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
    if "auto" not in (settings.bf16, settings.torch_compile):
        return settings
    found = choose_together(settings, accelerator, dtype=dtype)
    chosen: dict[str, Any] = {"bf16": found.bf16, "torch_compile": found.torch_compile}
    return replace(settings, **chosen)  # type: ignore[type-var]


def _word(value: bool) -> str:
    return str(value).lower()
