"""Loading and saving the network in the public directory formats.

A directory holds `config.json` and safetensors, one file or shards with an index. The family of a
configuration says how its keys and its tensor names map to the core; see `find_family`.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmrl.config.settings_file import read_settings_file
from mmrl.models.adapter_weights import check_adapter, has_adapter, merge_stored, save_adapter
from mmrl.models.families import get_family, names_of, public_names
from mmrl.models.families.pipeline import (
    check_parts,
    copy_parts,
    is_pipeline,
    network_directories,
    read_pipeline,
)
from mmrl.models.network.network import Network
from mmrl.models.public_code import Source, copy_code, describe_code
from mmrl.models.quantization import quantize
from mmrl.models.quantization_config import QuantizationConfig
from mmrl.models.source import find_base, find_directory, find_whole, is_adapter
from mmrl.models.weights import (
    BUILD_ERRORS,
    DIFFUSERS_NAME,
    StoredWeights,
    check_weights,
    locate_tensors,
    read_headers,
    resolve_dtype,
    write_weights,
)


def load_model(
    path_or_hub_id: str | Path,
    dtype: str | torch.dtype = "float32",
    device: str | torch.device = "cpu",
    attn_implementation: str = "sdpa",
    merge_adapter: bool = True,
    quantization_config: QuantizationConfig | None = None,
    deferred: bool = False,
) -> Network:
    """The network of a checkpoint, or of a PEFT adapter, whose `adapter_config.json` names its
    base, of a directory, or a hub id when there is no such directory; no tokenizer needed.
    `model(input_ids=…, attention_mask=…).logits`, in eval mode. The size of the vocabulary is that
    of the tensors, whatever the configuration says.

    `dtype` of the weights is float32, bfloat16, float16 or float64; `attn_implementation` `sdpa`,
    `eager`, or `auto`, see `choose_attention`. Without `merge_adapter` an adapter is not added to
    the weights of its base. `quantization_config` holds the linear layers of the blocks in 4 bits,
    each quantised when it is read; an adapter is then not added. A `deferred` network stays on the
    meta device, for processes that share one copy of it: each reads its part later, from `stored`
    of the network.

    Raises FileNotFoundError: no such directory, or it lacks config.json or weights. Raises
    ValueError: an unknown family, a damaged file, tensors that do not fit, an adapter of another
    base, or weights of 4 bits or an adapter to be merged that are deferred."""
    directory = find_directory(path_or_hub_id)
    model, settings = outline(directory), (merge_adapter, quantization_config, deferred)
    read_network(model, path_or_hub_id, directory, dtype, device, attn_implementation, *settings)
    return model


def read_network(
    model: Network,
    path_or_hub_id: str | Path,
    directory: Path,
    dtype: str | torch.dtype,
    device: str | torch.device,
    attn_implementation: str,
    merge_adapter: bool,
    quantization_config: QuantizationConfig | None,
    deferred: bool,
) -> None:
    """Read the weights of an outlined network, in place; arguments and errors as in `load_model`,
    whose path or hub id is that of `directory`."""
    adapted = is_adapter(directory)
    kind, whole = resolve_dtype(dtype), find_whole(directory)
    if deferred and quantization_config is not None:
        raise ValueError(
            "quantization_config is given and the processes share the weights: those of 4 bits"
            " are not sharded. Launch with --config_file configs/accelerate/multi_gpu.yaml."
        )
    if deferred and adapted and merge_adapter:
        raise ValueError(
            f"'{directory}' is an adapter, and the processes share the weights: it is continued"
            " with `lora`, and not added to them. Merge it first: python scripts/merge_adapter.py."
        )
    places = {
        start + name: (path, name)
        for start, folder in network_directories(whole).items()
        for name, path in locate_tensors(folder).items()
    }
    files = {key: places[name] for key, name in names_of(model).items()}
    model.stored = StoredWeights(files, kind, torch.device(device))
    if deferred:
        model.to(kind)
    else:
        fill_network(model, quantization_config)
    model.load_parts(whole, kind, device)
    if adapted and merge_adapter and quantization_config is None:
        merge_stored(model, directory)
    # a hub id rather than its place in the cache
    model.source = Source(str(find_base(directory) if adapted else path_or_hub_id), whole)
    model.set_attention(attn_implementation)
    model.eval()


def fill_network(model: Network, quantization_config: QuantizationConfig | None) -> None:
    """Read the weights of a network that is on the meta device."""
    read, files = model.stored.read, model.stored.files
    small = [] if quantization_config is None else quantize(model, quantization_config, read)
    state = {name: read(name) for name in files if name not in small}
    model.stored = None
    model.load_state_dict(state, assign=True, strict=not (model.tied or small))
    for name, other in model.tied.items():
        layer, _, own = name.rpartition(".")
        setattr(model.get_submodule(layer), own, model.get_parameter(other))


def outline(directory: Path, left_out: Collection[str] = ()) -> Network:
    """The network of a directory without its weights, on the meta device; that of the base for an
    adapter, which is compared with it. Raises FileNotFoundError, ValueError: see `load_model`; no
    tensor is read to find them, and parts of a pipeline that are `left_out` may have none."""
    if is_adapter(directory):
        model = outline(find_whole(directory), left_out)
        check_adapter(directory, model)
        return model
    check_parts(directory, left_out)
    config = read_config(directory)
    tensors = {
        start + name: tensor
        for start, folder in network_directories(directory).items()
        for name, tensor in read_headers(folder).items()
    }
    family = get_family(config)
    rows = tensors.get(family.KEYS.get("embed.weight", ""))
    if rows is not None and rows.ndim == 2:
        stated = {"vocab_size", *config.keys() & {"embedding_size"}}
        config |= dict.fromkeys(stated, rows.shape[0])
    try:
        with torch.device("meta"):
            model = build_network(config)
    except BUILD_ERRORS as error:
        raise ValueError(
            f"'{directory}' cannot be loaded: {error}. Check that config.json belongs to its"
            " weights, or take a checkpoint without this variant."
        ) from error
    names = public_names(model.state_dict(), model.tied, family.KEYS)
    expected = {names[key]: tensor for key, tensor in model.state_dict().items() if key in names}
    for name in model.tied:
        tensors.pop(family.KEYS[name], None)
    check_weights(tensors, expected, str(directory))
    return model


def build_network(config: Mapping[str, Any]) -> Network:
    """The network of a config.json of a known family, with weights as layers draw them."""
    model = get_family(config).network(config)
    model.public_config = dict(config)
    return model


def save_model(
    model: Network,
    directory: str | Path,
    dtype: str | torch.dtype | None = None,
    state: Mapping[str, Tensor] | None = None,
) -> None:
    """Write the network so that the public code of its family can load it, the weights in `dtype`
    or their own; `state`, under the core's names, takes the place of the model's tensors."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    state = model.state_dict() if state is None else state
    kind = None if dtype is None else resolve_dtype(dtype)
    if has_adapter(state):
        save_adapter(model, directory, kind, state)
        return
    names = public_names(state, model.tied, get_family(model.public_config).KEYS)
    tensors = {name: state[key].to("cpu", kind) for key, name in names.items()}
    if model.source is not None and is_pipeline(model.source.directory):
        copy_parts(model.source.directory, directory)
        # the longest beginning first, so that the rest is that of the first folder
        for start, folder in sorted(network_directories(directory).items(), reverse=True):
            own = {name: tensors.pop(name) for name in [*tensors] if name.startswith(start)}
            own = {name.removeprefix(start): tensor for name, tensor in own.items()}
            write_weights(own, folder, DIFFUSERS_NAME)
        return
    write_weights(tensors, directory)
    config = describe_code(model.public_config, model.source)
    text = json.dumps(config, indent=2, sort_keys=True)
    (directory / "config.json").write_text(text + "\n")
    if model.source is not None:
        copy_code(model.source, config, directory)


def read_config(directory: Path) -> dict[str, Any]:
    """`config.json` of a directory, of a known family. Raises FileNotFoundError: there is none.
    Raises ValueError: it is not JSON, or of an unknown family."""
    if is_pipeline(directory):
        return read_pipeline(directory)
    path = directory / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{directory} holds no config.json; it is not a model checkpoint")
    config = read_settings_file(path)
    try:
        family = get_family(config)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    complete = getattr(family, "complete_config", None)
    return config if complete is None else complete(config, directory)


def new_model(config: Mapping[str, Any], generator: torch.Generator) -> Network:
    """A new network of a config.json, see `Network.draw_weights`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator.initial_seed())  # for layers that keep what they drew
        model = build_network(config)
    model.draw_weights(generator)
    return model
