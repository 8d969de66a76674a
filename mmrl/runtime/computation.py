"""How a run computes: its device, precision and attention kernel, where `auto` follows the device.

All processes of a run compute alike: in bfloat16 only where every device has instructions that
multiply bfloat16 matrices. These are CUDA from compute capability 8, x86 with AVX512-BF16 or
AMX-BF16, ARM with BF16. Elsewhere numbers are converted to float32 and back around every product,
which makes a step on a CPU 2 to 9 times as long. torch does not say it of other devices.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from mmrl.config import ConfigError, check
from mmrl.models.network.attention import choose_attention
from mmrl.runtime.launch import find_accelerator
from mmrl.runtime.placement import Placement

Precision = Literal["auto", True, False]


class Computation(NamedTuple):
    """Whether a network runs under bfloat16 autocast, and a line for each choice."""

    bf16: bool
    reasons: tuple[str, ...] = ()


def choose(
    bf16: Precision,
    device: torch.device,
    natives: Sequence[tuple[bool, str]],
    attn_implementation: str | None = None,
    dtype: str = "float32",
) -> Computation:
    """Choose how a run computes on a device, with weights of a dtype. `natives` are
    `native_bfloat16` of every process; `attn_implementation` is the setting, None where the run has
    none."""
    chosen, why = _choose_precision(bf16, natives, dtype)
    reasons = [f"bf16: {str(chosen).lower()}, {why}"]
    if attn_implementation is not None:
        product = torch.bfloat16 if chosen else getattr(torch, dtype)
        kernel, why = choose_attention(attn_implementation, device.type, product)
        reasons.append(f"attn_implementation: {kernel}, {why}")
    return Computation(chosen, tuple(reasons))


def choose_planned(
    bf16: Precision, placement: Placement, kernel: str | None = None, dtype: str = "float32"
) -> Computation:
    """`choose` for the devices of a plan, which need not be here."""
    named, device = placement.named, torch.device("cuda")
    native = True, f"{named.name if named else 'a GPU'} computes it natively"
    if named is not None and not named.bf16:
        native = False, f"{named.name} emulates it"
    found = find_accelerator()
    if named is None and (placement.device == "cpu" or found is not None):
        device = found or torch.device("cpu")
        native = native_bfloat16(device)
    return choose(bf16, device, [native], kernel, dtype)


def choose_together(
    bf16: Precision, accelerator: Accelerator, kernel: str | None = None, dtype: str = "float32"
) -> Computation:
    """`choose` for a run of several processes; every process calls this."""
    natives = gather_object([native_bfloat16(accelerator.device)])
    return choose(bf16, accelerator.device, natives, kernel, dtype)


def _choose_precision(
    wish: Precision, natives: Sequence[tuple[bool, str]], dtype: str
) -> tuple[bool, str]:
    """Whether a run computes in bfloat16, and the reason."""
    if wish != "auto":
        return wish, "as set"
    if dtype in ("float64", "float16"):
        return False, f"the weights are {dtype}"
    lacking = [rank for rank, (native, _) in enumerate(natives) if not native]
    where = f"process {lacking[0]}: " if lacking and len(natives) > 1 else ""
    return not lacking, where + natives[lacking[0] if lacking else 0][1]


def native_bfloat16(device: torch.device) -> tuple[bool, str]:
    """Whether a device computes bfloat16 natively, and the reason, which names the device."""
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        return native, f"as torch says of {torch.cuda.get_device_name(device)}"
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


def find_device(name: str) -> torch.device:
    """The device of a single-process program, by its torch name; `auto` is the GPU if there is one.
    Raises ConfigError: there is no such device, or not on this machine."""
    if name == "auto":
        return find_accelerator() or torch.device("cpu")
    check(not name.startswith("mps"), "device", name, "auto or cpu", "Metal has no float64.")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        reason = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise ConfigError(
            f"device is {name!r}, which this machine does not offer ({reason})."
            " Set it to auto, cpu or cuda."
        ) from error
    return torch.device(name)
