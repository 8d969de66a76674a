"""The tensors of a PEFT adapter: reading, checking, merging and writing them.

On disk they have peft's names around those of the public checkpoint, so that
`peft.PeftModel.from_pretrained` puts the adapter on the public model:

    base_model.model.<public layer>.lora_A.weight            first factor [r, in]
    base_model.model.<public layer>.lora_B.weight            second factor [out, r]
    base_model.model.<public layer>.lora_magnitude_vector    lengths of the rows [out], DoRA alone
    base_model.model.<public name>                           a tensor trained in full
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor

from mmrl.models.adapter_source import ADAPTER_CONFIG, find_base, read_adapter_config
from mmrl.models.weights import list_differences, list_first, read_header, read_tensors

if TYPE_CHECKING:
    from peft import LoraConfig

    from mmrl.models.network.network import Network

ADAPTER_WEIGHTS = "adapter_model.safetensors"
LORA = ".lora_"
_PREFIX = "base_model.model."


class Adapter(NamedTuple):
    """Tensors of an adapter under the names of the core.

    `layers`: layer -> its tensors A, B and, for DoRA, magnitude. `full`: replaced tensors.
    `scaling`: factor of the product.
    """

    layers: dict[str, dict[str, Tensor]]
    full: dict[str, Tensor]
    scaling: float


def read_adapter(directory: Path, names: Mapping[str, str], headers: bool = False) -> Adapter:
    """The tensors of an adapter.

    Args:
        directory: of the adapter.
        names: public name of every tensor of the network by its core name.
        headers: whether to read shapes alone, as tensors on the meta device.

    Raises:
        FileNotFoundError: it holds no weights.
        ValueError: a damaged file, or tensors that are of no layer of the network.
    """
    path, config = directory / ADAPTER_WEIGHTS, read_adapter_config(directory)
    if not path.is_file():
        raise FileNotFoundError(
            f"'{path}' is not there; adapters are read from safetensors. Save it again with peft's"
            " save_pretrained."
        )
    tensors = read_header(path) if headers else read_tensors(path)
    core = {public: name for name, public in names.items()}
    layers: dict[str, dict[str, Tensor]] = defaultdict(dict)
    full, unknown = {}, []
    for key, tensor in tensors.items():
        public = key.removeprefix(_PREFIX).replace(".default", "")
        layer, factor, part = public.partition(LORA)
        name = core.get(f"{layer}.weight" if factor else public)
        if name is None:
            unknown.append(key)
        elif factor:
            kind = part.removesuffix(".weight").replace("magnitude_vector", "magnitude")
            layers[name.removesuffix(".weight")][kind] = tensor
        else:
            full[name] = tensor
    if unknown:
        raise ValueError(
            f"'{path}' has {len(unknown)} tensors of no layer of its base"
            f" {str(find_base(directory))!r}: {list_first(sorted(unknown))}. {_OTHER_BASE}"
        )
    root = config["r"] ** 0.5 if config.get("use_rslora") else config["r"]
    return Adapter(dict(layers), full, config["lora_alpha"] / root)


_OTHER_BASE = (
    f"It belongs to another model: write the one it was trained on into base_model_name_or_path of"
    f" {ADAPTER_CONFIG}."
)


def check_adapter(directory: Path, names: Mapping[str, str], state: Mapping[str, Tensor]) -> None:
    """Compare an adapter with the network of its base, from the headers of its file.

    Args:
        directory: of the adapter.
        names: public name of every tensor of the network by its core name.
        state: the tensors of the network; their values are not read.

    Raises:
        FileNotFoundError, ValueError: see `read_adapter`; also wrong shapes or missing tensors.
    """
    adapter, config = read_adapter(directory, names, headers=True), read_adapter_config(directory)
    rank, found, expected = config["r"], {}, {}
    for layer, parts in adapter.layers.items():
        rows, columns = state[f"{layer}.weight"].shape
        shapes = {"A": (rank, columns), "B": (rows, rank)}
        shapes |= {"magnitude": (rows,)} if config.get("use_dora") else {}
        start = names[f"{layer}.weight"].removesuffix("weight") + "lora_"
        found |= {start + part: tensor for part, tensor in parts.items()}
        expected |= {start + p: torch.empty(shapes[p], device="meta") for p in shapes}
    found |= {names[name]: tensor for name, tensor in adapter.full.items()}
    expected |= {names[name]: state[name] for name in adapter.full}
    problems = list_differences(found, expected) if found else "it holds no tensor"
    if problems:
        raise ValueError(
            f"'{directory / ADAPTER_WEIGHTS}' does not fit its base {str(find_base(directory))!r}"
            f" and {ADAPTER_CONFIG} (r is {rank}): {problems}. {_OTHER_BASE}"
        )


def merge_layer(weight: Tensor, parts: Mapping[str, Tensor], scaling: float) -> Tensor:
    """The weight of a layer with its adapter, computed in float32 or wider.

    Args:
        weight: [out, in].
        parts: tensors A, B and, for DoRA, magnitude.
        scaling: factor of the product.

    Returns:
        [out, in] in the dtype and place of `weight`.
    """
    wide = torch.promote_types(weight.dtype, torch.float32)
    low, high = parts["A"].to(weight.device, wide), parts["B"].to(weight.device, wide)
    merged = weight.to(wide) + (high @ low) * scaling
    if "magnitude" in parts:
        length = parts["magnitude"].to(weight.device, wide) / merged.norm(dim=1)
        merged = length[:, None] * merged
    return merged.to(weight.dtype)


@torch.no_grad()
def merge_into(state: Mapping[str, Tensor], adapter: Adapter) -> dict[str, Tensor]:
    """A network's tensors with an adapter merged into them; those it leaves alone are shared."""
    merged = dict(state)
    for name, tensor in adapter.full.items():
        merged[name] = tensor.to(state[name].device, state[name].dtype)
    for layer, parts in adapter.layers.items():
        name = f"{layer}.weight"
        merged[name] = merge_layer(merged[name], parts, adapter.scaling)
    return merged


def has_adapter(state: Iterable[str]) -> bool:
    """Whether names of a network's tensors are those with peft's layers in it."""
    return any(LORA in name for name in state)


def split_adapter(
    state: Mapping[str, Tensor], config: LoraConfig, trained: Iterable[str] = ()
) -> tuple[dict[str, Tensor], Adapter]:
    """Separate the tensors of a network with peft's layers.

    Args:
        state: the network's tensors.
        config: of the adapter.
        trained: names among them that are trained in full.

    Returns:
        The tensors of the network without the adapter under the core's names, and the adapter.
    """
    layers: dict[str, dict[str, Tensor]] = defaultdict(dict)
    base, chosen = {}, set(trained)
    full = {}
    for name, tensor in state.items():
        layer, factor, part = name.partition(LORA)
        if factor:
            kind = part.partition(".")[0].replace("magnitude_vector", "magnitude")
            layers[layer][kind] = tensor
            continue
        if ".weight." in name:  # the scales of a quantised weight
            continue
        own = name.replace(".base_layer.", ".")
        base[own] = tensor
        if name in chosen:
            full[own] = tensor
    root = config.r**0.5 if config.use_rslora else config.r
    return base, Adapter(dict(layers), full, config.lora_alpha / root)


def write_adapter(
    adapter: Adapter,
    base: Mapping[str, Tensor],
    config: LoraConfig,
    network: Network,
    names: Mapping[str, str],
    directory: Path,
) -> None:
    """Write an adapter as peft does, into an existing directory.

    A tensor trained in full is listed by its layer under `modules_to_save`. One that peft cannot
    list, a parameter outside a layer or the base of a layer with an adapter, is in the file as
    well; peft ignores it, `load_model` reads it.

    Args:
        adapter: under the core's names.
        base: the other tensors of the network, likewise.
        config: that the layers were built with; `base_model_name_or_path` names the base.
        network: with or without the adapter.
        names: public name of every tensor of the network by its core name.
        directory: written into.
    """
    from peft import LoraConfig

    public = {layer: names[f"{layer}.weight"].removesuffix(".weight") for layer in adapter.layers}
    tensors, saved = {}, set()
    for layer, parts in adapter.layers.items():
        for part, tensor in parts.items():
            end = "lora_magnitude_vector" if part == "magnitude" else f"lora_{part}.weight"
            tensors[f"{_PREFIX}{public[layer]}.{end}"] = tensor
    for name, tensor in adapter.full.items():
        tensors[_PREFIX + names[name]] = tensor
        if not any(network.get_submodule(name.rpartition(".")[0]).children()):
            saved.add(names[name].rpartition(".")[0])
    for name, own in names.items():  # of such a layer peft reads all tensors
        if own.rpartition(".")[0] in saved:
            tensors.setdefault(_PREFIX + own, base[name])
    written = LoraConfig(
        **{key: getattr(config, key) for key in _OPTIONS},
        target_modules=name_targets(public.values(), names.values()),
        modules_to_save=sorted(saved) or None,
        inference_mode=True,
    ).to_dict()
    plain = {key: sorted(v) if isinstance(v, set) else v for key, v in written.items()}
    text = json.dumps(plain, indent=2, sort_keys=True)
    (directory / ADAPTER_CONFIG).write_text(text + "\n")
    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(kept, directory / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    (directory / ADAPTER_WEIGHTS).chmod(0o644)


_OPTIONS = (
    "base_model_name_or_path",
    "r",
    "lora_alpha",
    "lora_dropout",
    "use_rslora",
    "use_dora",
)


def name_targets(chosen: Iterable[str], tensors: Iterable[str]) -> list[str] | str:
    """`target_modules` of peft for some layers of a public checkpoint.

    Args:
        chosen: public names of the layers.
        tensors: public names of all tensors.

    Returns:
        The last parts of their names; where other layers end alike, as LLaDA's output head
        `ff_out` does, a regular expression of the whole names.
    """
    layers = set(chosen)
    ends = {layer.rpartition(".")[2] for layer in layers}
    named = {tensor.rpartition(".")[0] for tensor in tensors}
    # of an end that is a number, peft would also take lists of blocks
    plain = not any(end.isdigit() for end in ends)
    if plain and {layer for layer in named if layer.rpartition(".")[2] in ends} == layers:
        return sorted(ends)
    patterns = {re.sub(r"\\\.\d+\\\.", r"\\.\\d+\\.", re.escape(layer)) for layer in layers}
    return "|".join(sorted(patterns))
