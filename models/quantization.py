"""4-bit weights by bitsandbytes on the linear layers of the blocks (QLoRA, arXiv 2305.14314)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from mmrl.config import import_extra

if TYPE_CHECKING:
    from mmrl.models.network.network import Network
    from mmrl.models.quantization_config import QuantizationConfig

BLOCK = 64
"""Weights that share a scale."""


def list_quantized(network: Network) -> list[str]:
    """Names of the weights that may be quantised. Raises ValueError: a network without blocks."""
    if not network.blocks:
        raise ValueError("quantization_config is given and this network has no 4-bit form; omit it")
    layers = network.block_layers()
    return [f"{name}.weight" for name, each in layers if isinstance(each, nn.Linear)]


def quantize(
    network: Network, settings: QuantizationConfig, read: Callable[[str], Tensor]
) -> list[str]:
    """Put bitsandbytes' layers in the place of those of `list_quantized`, whose names it returns;
    `read` gives their weights, each of which is quantised before the next is read."""
    library, names = import_extra("bitsandbytes", "quantization"), list_quantized(network)
    kind = {
        "compress_statistics": settings.bnb_4bit_use_double_quant,
        "quant_type": settings.bnb_4bit_quant_type,
    }
    compute = getattr(torch, settings.bnb_4bit_compute_dtype)
    for name in names:
        layer: Any = network.get_submodule(name.removesuffix(".weight"))
        weight = read(name)
        if weight.device.type == "cpu" and weight.shape[1] % BLOCK:
            raise ValueError(
                f"quantization_config is given and a layer reads {weight.shape[1]} values, no"
                f" multiple of {BLOCK}: bitsandbytes computes such layers wrongly on a CPU (seen in"
                " 0.50.2). Leave the section out, or run on a GPU."
            )
        sizes = layer.in_features, layer.out_features, layer.bias is not None
        made = library.nn.Linear4bit(*sizes, compute_dtype=compute, device="meta", **kind)
        packed = library.nn.Params4bit(weight, requires_grad=False, **kind)
        made.weight, made.bias = packed.to(weight.device), layer.bias
        # on a CPU with AVX512-BF16 the first pass without gradient would pack the weights for
        # inference: scales rounded to bfloat16, no gradient for what lies below (seen in 0.50.2)
        made.support_avx512bf16_for_cpu = False
        network.set_submodule(name.removesuffix(".weight"), made)
    network.is_loaded_in_4bit = True  # type: ignore[assignment]  # read by peft
    return names


def count_parameters(parameter: Tensor) -> int:
    """Entries of a parameter; those of the weight for one in 4 bits, which packs two in a byte."""
    state = getattr(parameter, "quant_state", None)
    return parameter.numel() if state is None else state.shape.numel()
