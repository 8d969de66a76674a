"""The tensors of a PEFT adapter under the names of a public checkpoint; peft does the rest.

On disk they have peft's names around those of the public checkpoint, so that
`peft.PeftModel.from_pretrained` puts the adapter on the public model:

    base_model.model.<public layer>.lora_A.weight            first factor [r, in]
    base_model.model.<public layer>.lora_B.weight            second factor [out, r]
    base_model.model.<public layer>.lora_magnitude_vector    lengths of the rows [out], DoRA alone
    base_model.model.<public name>                           a tensor trained in full
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmrl.models.families import names_of
from mmrl.models.network.network import Network
from mmrl.models.source import ADAPTER_CONFIG, LORA, find_base, read_adapter_config
from mmrl.models.weights import (
    list_differences,
    list_first,
    read_header,
    read_tensors,
    write_weights,
)

ADAPTER_WEIGHTS = "adapter_model.safetensors"
OPTIONS = ("r", "lora_alpha", "use_rslora", "use_dora")
"""Options of peft's `LoraConfig` that an adapter may have here."""
_PREFIX = "base_model.model."
_OTHER_BASE = f"Write the model it was trained on as base_model_name_or_path into {ADAPTER_CONFIG}."


def locate_adapter(directory: Path, names: Mapping[str, str]) -> dict[str, str]:
    """Where each tensor of an adapter is: by the name that it has on the core, that in the file;
    `names` as of `names_of`. Raises FileNotFoundError: it holds no weights. Raises ValueError: a
    damaged file, or tensors that are of no layer of the network."""
    path = directory / ADAPTER_WEIGHTS
    if not path.is_file():
        raise FileNotFoundError(f"'{path}' is not there; adapters are read from safetensors alone")
    core = {public: name for name, public in names.items()}
    found, unknown = {}, []
    for key in read_header(path):
        public = key.removeprefix(_PREFIX).replace(".default", "")
        layer, factor, part = public.partition(LORA)
        name = core.get(f"{layer}.weight" if factor else public)
        if name is None:
            unknown.append(key)
        else:
            found[name.removesuffix(".weight") + LORA + part if factor else name] = key
    if unknown:
        raise ValueError(
            f"'{path}' has {len(unknown)} tensors of no layer of its base"
            f" {str(find_base(directory))!r}: {list_first(sorted(unknown))}. {_OTHER_BASE}"
        )
    return found


def read_adapter(directory: Path, names: Mapping[str, str]) -> dict[str, Tensor]:
    """The tensors of an adapter by their names on the core; arguments and errors as above."""
    places, tensors = locate_adapter(directory, names), read_tensors(directory / ADAPTER_WEIGHTS)
    return {name: tensors[key] for name, key in places.items()}


def list_layers(tensors: Iterable[str]) -> list[str]:
    """The layers that have factors among these tensors."""
    return sorted({name.partition(LORA)[0] for name in tensors if LORA in name})


def check_adapter(directory: Path, network: Network) -> None:
    """Compare an adapter with the network of its base, from the header of its file. Raises
    FileNotFoundError, ValueError: see `locate_adapter`; also wrong shapes, missing tensors."""
    names, config = names_of(network), read_adapter_config(directory)
    places, header = locate_adapter(directory, names), read_header(directory / ADAPTER_WEIGHTS)
    found = {name: header[key] for name, key in places.items()}
    expected = {name: t for name, t in network.state_dict().items() if name in found}
    for layer in list_layers(found):
        outputs, inputs = network.get_parameter(f"{layer}.weight").flatten(1).shape
        shapes = {"A.weight": (config["r"], inputs), "B.weight": (outputs, config["r"])}
        shapes |= {"magnitude_vector": (outputs,)} if config.get("use_dora") else {}
        factors = {f"{layer}{LORA}{part}": shape for part, shape in shapes.items()}
        expected |= {n: torch.empty(shape, device="meta") for n, shape in factors.items()}
    both = ({_public(n, names): t for n, t in side.items()} for side in (found, expected))
    problems = list_differences(*both) if list_layers(found) else "it holds no tensor of a layer"
    if problems:
        raise ValueError(
            f"'{directory / ADAPTER_WEIGHTS}' does not fit its base {str(find_base(directory))!r}"
            f" and {ADAPTER_CONFIG} (r is {config['r']}): {problems}. {_OTHER_BASE}"
        )


def load_full(network: Network, tensors: Mapping[str, Tensor]) -> None:
    """Copy what an adapter has trained in full into its base."""
    network.load_state_dict({n: t for n, t in tensors.items() if LORA not in n}, strict=False)


def load_factors(network: Network, tensors: Mapping[str, Tensor]) -> None:
    """Copy the factors of an adapter into a network with its layers."""
    from peft import set_peft_model_state_dict

    set_peft_model_state_dict(network, {n: t for n, t in tensors.items() if LORA in n})


def merge_stored(network: Network, directory: Path) -> None:
    """Add an adapter on disk to the weights of its base; errors of `read_adapter`."""
    import peft

    tensors = read_adapter(directory, names_of(network))
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    load_full(network, tensors)
    stored = read_adapter_config(directory)
    options: Any = {key: stored[key] for key in OPTIONS if key in stored}
    config = peft.LoraConfig(**options, target_modules=list_layers(tensors))
    model: Any = peft.get_peft_model(network, config)  # type: ignore[arg-type]
    load_factors(network, tensors)
    model.merge_and_unload()
    for parameter in trained:  # which peft has frozen
        parameter.requires_grad_(True)


def has_adapter(state: Iterable[str]) -> bool:
    """Whether names of a network's tensors are those with peft's layers in it."""
    return any(LORA in name for name in state)


def adapter_tensors(model: Network, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What `save_adapter` needs of a state, whole or this process's parts: factors, and layers of
    which a tensor is trained in full."""
    layers = {name.rpartition(".")[0] for name in trained_in_full(model)}
    return {n: t for n, t in state.items() if LORA in n or n.rpartition(".")[0] in layers}


def trained_in_full(model: Network) -> set[str]:
    """Names of the trained tensors that are no factors of an adapter."""
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    return {name for name in trained if LORA not in name}


def save_adapter(
    model: Any, directory: Path, dtype: torch.dtype | None, state: Mapping[str, Tensor]
) -> None:
    """Write the adapter of a network as a PEFT directory, with what is trained in full besides, in
    `dtype` or its own; `state` holds at least `adapter_tensors` of the network.

    A tensor trained in full is listed by its layer under `modules_to_save`. One that peft cannot
    list, a parameter outside a layer or the base of a layer with an adapter, is in the file as
    well; peft ignores it, `load_model` reads it.
    """
    from peft import get_peft_model_state_dict

    factors = get_peft_model_state_dict(model, dict(state), save_embedding_layers=False)
    names = names_of(model)
    base = {n.replace(".base_layer.", "."): t for n, t in state.items() if LORA not in n}
    full = {name.replace(".base_layer.", ".") for name in trained_in_full(model)}
    layers = {name.rpartition(".")[0] for name in full}
    listed = {layer for layer in layers if not any(model.get_submodule(layer).children())}
    whole = {name for name in names if name.rpartition(".")[0] in listed}  # peft reads all of it
    tensors = {_public(name, names): tensor for name, tensor in factors.items()}
    for name in sorted(full | whole):
        tensors[names[name]] = base[name].to("cpu", dtype if name in full else None)
    [config] = model.peft_config.values()
    written = copy.copy(config)
    chosen = [names[f"{layer}.weight"].rpartition(".")[0] for layer in list_layers(factors)]
    written.target_modules = name_targets(chosen, names.values())
    written.modules_to_save = sorted({names[n].rpartition(".")[0] for n in whole}) or None
    written.inference_mode = True
    written.save_pretrained(str(directory))
    keyed = {_PREFIX + name: tensor for name, tensor in tensors.items()}
    write_weights(keyed, directory, ADAPTER_WEIGHTS)


def name_targets(chosen: Iterable[str], tensors: Iterable[str]) -> list[str]:
    """`target_modules` of peft for some layers of a public checkpoint: the last parts of their
    names, or whole names where other layers end alike, as LLaDA's output head `ff_out` does."""
    layers = set(chosen)
    ends = {layer.rpartition(".")[2] for layer in layers}
    named = {tensor.rpartition(".")[0] for tensor in tensors}
    # of an end that is a number, peft would also take lists of blocks
    plain = not any(end.isdigit() for end in ends)
    alike = {layer for layer in named if layer.rpartition(".")[2] in ends}
    return sorted(ends if plain and alike == layers else layers)


def _public(name: str, names: Mapping[str, str]) -> str:
    """The name of a tensor or of a factor in the public checkpoint, from that of the core."""
    layer, factor, part = name.partition(LORA)
    return names[f"{layer}.weight"].removesuffix(".weight") + LORA + part if factor else names[name]
