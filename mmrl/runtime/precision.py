"""bfloat16: the devices that compute it natively, and autocast of one network.

Native means instructions that multiply bfloat16 matrices: CUDA from compute capability 8, x86 with
AVX512-BF16 or AMX-BF16, ARM with BF16. Elsewhere numbers are converted to float32 and back around
every product, which makes a step on a CPU 2 to 9 times as long. Apple's GPUs count as not native:
torch does not say which of them emulate it.
"""

import logging
from typing import Any

import torch
from accelerate.utils import convert_to_fp32
from torch import nn

logger = logging.getLogger(__name__)


def native_bfloat16(device: torch.device) -> tuple[bool, str]:
    """Whether a device computes bfloat16 natively, and the reason, which names the device."""
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        return native, f"as torch says of {torch.cuda.get_device_name(device)}"
    if device.type == "xpu":
        return torch.xpu.is_bf16_supported(including_emulation=False), "as torch.xpu says"
    if device.type != "cpu":
        return False, f"torch does not say whether this {device.type} device computes it natively"
    found = torch.cpu.get_capabilities()
    arm = str(found.get("architecture", "")).startswith(("arm", "aarch"))
    names = {"bf16": "BF16"} if arm else {"avx512_bf16": "AVX512-BF16", "amx_bf16": "AMX-BF16"}
    here = [name for key, name in names.items() if found.get(key)]
    if not here:
        return False, f"this CPU has no {' or '.join(names.values())} instructions"
    if not torch.backends.mkldnn.is_available():
        return False, f"this torch has no oneDNN to use the {here[0]} instructions of this CPU"
    return True, f"this CPU has {here[0]} instructions"


def warn_of_change(before: bool | None, now: bool) -> None:
    """Log a warning where a resumed run has another precision than the run of its checkpoint.

    Args:
        before: whether the checkpoint's run was in bfloat16; None where it does not say.
        now: whether this run is.
    """
    if before is not None and before != now:
        logger.warning(
            "the checkpoint is of a run in %s and is resumed in the other precision, because the"
            " device or the setting bf16 changed. bf16=%s keeps the precision it had.",
            "bfloat16" if before else "float32",
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
