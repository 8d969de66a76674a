"""bfloat16: the devices that compute it natively, and autocast of one network.

Native means instructions that multiply bfloat16 matrices: CUDA from compute capability 8, x86 with
AVX512-BF16 or AMX-BF16, ARM with BF16, where oneDNN may use them. Elsewhere numbers are converted
to float32 and back around every product. Apple's GPUs count as not native: torch does not say which
of them emulate it.
"""

import logging
import os
from collections.abc import Sequence
from typing import Any, Literal

import torch
from accelerate.utils import convert_to_fp32
from torch import nn

from mmrl.config import check

logger = logging.getLogger(__name__)
MEASURED = (
    "a step of configs/rl/shapes_t2i.yaml takes 9 times as long as in float32 with AVX2, twice as"
    " long with AVX-512"
)
"""Measured on one core of a Xeon."""

WITHOUT_BF16 = {
    "SSE41",
    "AVX",
    "AVX2",
    "AVX2_VNNI",
    "AVX2_VNNI_2",
    "AVX512_CORE",
    "AVX512_CORE_VNNI",
}
"""Values of ONEDNN_MAX_CPU_ISA with which oneDNN does not use the bfloat16 instructions."""


def native_bfloat16(device: torch.device) -> tuple[bool, str]:
    """Whether a device computes bfloat16 natively, and the reason, which names the device."""
    if device.type == "cuda":
        return _on_cuda(device)
    if device.type == "cpu":
        return _on_cpu()
    if device.type == "xpu":
        return torch.xpu.is_bf16_supported(including_emulation=False), "as torch.xpu says"
    return False, f"torch does not say whether this {device.type} device computes it natively"


def choose_precision(
    wish: Literal["auto", True, False], natives: Sequence[tuple[bool, str]], dtype: str = "float32"
) -> tuple[bool, str]:
    """Whether a run computes in bfloat16, and the reason.

    Args:
        wish: the setting.
        natives: `native_bfloat16` of the device of every process.
        dtype: name of the dtype of the weights.

    Raises:
        ConfigError: the setting is neither `auto` nor true or false.
    """
    check(wish in ("auto", True, False), "bf16", wish, "auto, true or false")
    if wish != "auto":
        return wish, "as set"
    if dtype == "float64":
        return False, "the weights are float64"
    lacking = [rank for rank, (native, _) in enumerate(natives) if not native]
    where = f"process {lacking[0]}: " if lacking and len(natives) > 1 else ""
    return not lacking, where + natives[lacking[0] if lacking else 0][1]


def explain_slowness(
    bf16: bool, dtype: str, device: torch.device, natives: Sequence[tuple[bool, str]]
) -> str:
    """The warning about a CPU that emulates bfloat16; empty for other devices.

    Args:
        bf16: whether the network runs under autocast.
        dtype: name of the dtype of its weights.
        device: of this process.
        natives: as for `choose_precision`.
    """
    lacking = [why for native, why in natives if not native]
    if device.type != "cpu" or not lacking or not (bf16 or dtype == "bfloat16"):
        return ""
    key, instead = ("bf16", "auto") if bf16 else ("model.dtype", "float32")
    return (
        f"{key} is {'true' if bf16 else dtype}, but {lacking[0]}: {MEASURED}. Set {key}={instead}."
    )


def warn_of_change(before: bool | None, now: bool) -> None:
    """Log a warning where a resumed run has another precision than the run of its checkpoint.

    Args:
        before: whether the checkpoint's run was in bfloat16; None where it does not say.
        now: whether this run is.
    """
    names = {True: "bfloat16", False: "float32"}
    if before is not None and before != now:
        logger.warning(
            "the checkpoint is of a run in %s and is resumed in %s, because the device or the"
            " setting bf16 changed; its curves mix both. bf16=%s keeps the precision it had.",
            names[before],
            names[now],
            str(before).lower(),
        )


def widen(network: nn.Module, everything: bool = False) -> None:
    """Hold the trained weights of a network in float32, where optimisers sum small updates.

    Args:
        network: with weights of lower precision, one tensor of which is converted at a time.
        everything: whether to convert the others too, for a run that does not compute under
            autocast.
    """
    for parameter in network.parameters():
        half = parameter.dtype in (torch.bfloat16, torch.float16)
        if half and (everything or parameter.requires_grad):
            parameter.data = parameter.data.float()


def _on_cuda(device: torch.device) -> tuple[bool, str]:
    name = torch.cuda.get_device_name(device)
    if torch.version.hip:  # compute capabilities are not those of CUDA
        return torch.cuda.is_bf16_supported(including_emulation=False), f"as torch says of {name}"
    major, minor = torch.cuda.get_device_capability(device)
    return major >= 8, f"{name} has compute capability {major}.{minor}, native from 8.0"


def _on_cpu() -> tuple[bool, str]:
    # absent before torch 2.11
    found = getattr(torch.cpu, "get_capabilities", dict)()
    arm = str(found.get("architecture", "")).startswith(("arm", "aarch"))
    names = {"bf16": "BF16"} if arm else {"avx512_bf16": "AVX512-BF16", "amx_bf16": "AMX-BF16"}
    here = [name for key, name in names.items() if found.get(key)]
    if not here:
        return False, f"this CPU has no {' or '.join(names.values())} instructions"
    if not torch.backends.mkldnn.is_available():
        return False, f"this torch has no oneDNN to use the {here[0]} instructions of this CPU"
    for variable in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        if os.environ.get(variable, "").upper() in WITHOUT_BF16:
            return False, f"{variable}={os.environ[variable]} hides {here[0]} of this CPU"
    return True, f"this CPU has {here[0]} instructions"


def keep_casts(device: torch.device) -> torch.autocast:
    """A context in which autocast converts each float32 weight once and not in every forward pass.

    For passes without gradient between which no weight changes; it holds a copy of the weights in
    bfloat16. Outside of `autocast_forward` nothing is computed in another precision than before.
    """
    kind = device.type
    dtype, enabled = torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
    return torch.autocast(kind, dtype=dtype, enabled=enabled)


def autocast_forward(module: nn.Module, device: torch.device) -> None:
    """Run the forward pass of a module under bfloat16 autocast and return float32.

    Losses stay outside and are computed in float32.
    """
    forward = module.forward

    def in_bfloat16(*arguments: Any, **named: Any) -> Any:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            outputs = forward(*arguments, **named)
        return convert_to_fp32(outputs)

    module.forward = in_bfloat16  # type: ignore[method-assign]
