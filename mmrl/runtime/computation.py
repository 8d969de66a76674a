"""How a run computes: precision, attention kernel and compilation, where `auto` follows the device.

All processes of a run compute alike: in bfloat16 only where the device of each has it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from mmrl.runtime.compilation import choose_compilation
from mmrl.runtime.precision import choose_precision, native_bfloat16, slowness
from models.network.attention import choose_attention

logger = logging.getLogger(__name__)


class Settings(Protocol):
    """The settings read here."""

    bf16: Literal["auto", True, False]
    torch_compile: Literal["auto", True, False]


T = TypeVar("T", bound=Settings)


@dataclass(frozen=True)
class Computation:
    """What was chosen for a run, and why.

    Attributes:
        bf16: whether the network runs under bfloat16 autocast.
        torch_compile: whether its blocks are compiled.
        reasons: a line for each choice.
        warning: what is slow about them; empty for nothing.
    """

    bf16: bool
    torch_compile: bool
    reasons: tuple[str, ...]
    warning: str

    @property
    def lines(self) -> list[str]:
        """The reasons, and the warning if there is one."""
        return [*self.reasons, *([self.warning] if self.warning else [])]

    def log(self) -> None:
        """Write the reasons to the log, and the warning."""
        for line in self.reasons:
            logger.info("%s", line)
        if self.warning:
            logger.warning("%s", self.warning)

    def applied(self, settings: T) -> T:
        """The settings with what was chosen in the place of `auto`."""
        chosen: dict[str, Any] = {"bf16": self.bf16, "torch_compile": self.torch_compile}
        return replace(settings, **chosen)  # type: ignore[type-var]


def choose(
    settings: Settings,
    device: torch.device | None = None,
    natives: Sequence[tuple[bool, str]] = (),
    attn_implementation: str | None = None,
    dtype: str = "float32",
) -> Computation:
    """Decide how a run computes.

    Args:
        settings: of the run.
        device: of this process; None takes what a run of one process would take.
        natives: `native_bfloat16` of every process; none for that of this device alone.
        attn_implementation: the setting; None where the run has none.
        dtype: of the weights, by its name.

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
    return Computation(bf16, compiled, reasons, slowness(bf16, dtype, device, natives))


def choose_together(
    settings: Settings, accelerator: Accelerator, kernel: str | None = None, dtype: str = "float32"
) -> Computation:
    """`choose` for a run of several processes; each of them calls this."""
    natives = gather_object([native_bfloat16(accelerator.device)])
    return choose(settings, accelerator.device, natives, kernel, dtype)


def follow_device(settings: T, accelerator: Accelerator, dtype: str = "float32") -> T:
    """The settings with what the device decides in the place of `auto`; each process calls this."""
    if "auto" not in (settings.bf16, settings.torch_compile):
        return settings
    return choose_together(settings, accelerator, dtype=dtype).applied(settings)


def _word(value: bool) -> str:
    return str(value).lower()
