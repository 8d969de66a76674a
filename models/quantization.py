"""4-bit weights by bitsandbytes on the linear layers of the blocks (QLoRA, arXiv 2305.14314)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    """Names of the weights that are quantised where that is wanted. Raises ValueError: a network
    without `blocks`."""
    if not hasattr(network, "blocks"):
        raise ValueError("quantization_config is given and this network has no 4-bit form; omit it")
    layers = network.get_submodule("blocks").named_modules()
    return [f"blocks.{name}.weight" for name, layer in layers if isinstance(layer, nn.Linear)]


def quantizer(settings: QuantizationConfig) -> Callable[[Tensor], Tensor]:
    """A function from a weight to its 4-bit parameter on the same device."""
    library = import_extra("bitsandbytes", "quantization")

    def quantize(weight: Tensor) -> Tensor:
        if weight.device.type == "cpu" and weight.shape[1] % BLOCK:
            raise ValueError(
                f"quantization_config is given and a layer reads {weight.shape[1]} values, no"
                f" multiple of {BLOCK}: bitsandbytes computes such layers wrongly on a CPU (seen in"
                " 0.50.2). Leave the section out, or run on a GPU."
            )
        parameter = library.nn.Params4bit(
            weight,
            requires_grad=False,
            compress_statistics=settings.bnb_4bit_use_double_quant,
            quant_type=settings.bnb_4bit_quant_type,
        )
        return parameter.to(weight.device)

    return quantize


def replace_layers(
    network: Network, weights: Mapping[str, Tensor], settings: QuantizationConfig
) -> None:
    """Put bitsandbytes' layers with `weights`, from `quantizer` by the names of `list_quantized`,
    in the place of the linear ones."""
    library = import_extra("bitsandbytes", "quantization")
    for name, weight in weights.items():
        layer: Any = network.get_submodule(name.removesuffix(".weight"))
        made = library.nn.Linear4bit(
            layer.in_features,
            layer.out_features,
            bias=layer.bias is not None,
            compute_dtype=getattr(torch, settings.bnb_4bit_compute_dtype),
            compress_statistics=settings.bnb_4bit_use_double_quant,
            quant_type=settings.bnb_4bit_quant_type,
            device="meta",
        )
        made.weight, made.bias = weight, layer.bias
        # on a CPU with AVX512-BF16 the first pass without gradient would pack the weights for
        # inference: scales rounded to bfloat16, no gradient for what lies below (seen in 0.50.2)
        made.support_avx512bf16_for_cpu = False
        parent, _, own = name.removesuffix(".weight").rpartition(".")
        setattr(network.get_submodule(parent), own, made)
    network.is_loaded_in_4bit = True  # type: ignore[assignment]  # read by peft


def count_parameters(parameter: Tensor) -> int:
    """Entries of a parameter; those of the weight for one in 4 bits, which packs two in a byte."""
    state = getattr(parameter, "quant_state", None)
    return parameter.numel() if state is None else state.shape.numel()
