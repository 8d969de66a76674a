"""Checkpoints of rewards, by path or hub id: read without running their code, and complete."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from mmrl.config import ConfigError, NotHereError
from mmrl.config.checks import explain_absence, is_cached, is_hub_id

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def load_network(cls: Any, name: str, key: str) -> Any:
    """A network of transformers, by directory or hub id, in float32 with every weight from its
    checkpoint; messages name the configuration `key`. Raises ConfigError: no such checkpoint, one
    of another kind, or one with weights missing (which transformers alone would draw at random,
    with a warning); NotHereError for a hub id that is neither here nor can be downloaded."""
    network, report = load_part(cls, name, key, dtype="float32", output_loading_info=True)
    missing, misshapen = sorted(report["missing_keys"]), report["mismatched_keys"]
    if missing or misshapen:
        raise ConfigError(
            f"{key} {name!r} does not have all weights of a {type(network).__name__}: missing"
            f" {missing[:5]}, of another shape {list(misshapen)[:5]}. Check that the checkpoint is"
            " complete and of this kind."
        )
    return network


def load_part(cls: Any, name: str, key: str, **options: Any) -> Any:
    """`cls.from_pretrained(name)`, with the errors of `load_network`."""
    path = Path(name).expanduser()
    try:
        return cls.from_pretrained(str(path) if path.is_dir() else name, **options)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        if is_hub_id(name) and not path.exists() and not is_cached(name):
            raise NotHereError(f"{key}: {explain_absence(name, error)}") from None
        raise ConfigError(
            f"{key} is {name!r}, from which no {cls.__name__} can be loaded: {error}. Give a"
            " complete directory, or a hub id that is cached or can be downloaded."
        ) from error


def find_checkpoint(checkpoint: str, file_name: str, key: str) -> Path:
    """The checkpoint file that a path, a directory with `file_name` or a hub id of one (downloaded
    if necessary) names; messages name the configuration `key`. Raises FileNotFoundError: nothing is
    there. Raises NotHereError: a hub id whose file is not here and cannot be downloaded."""
    from huggingface_hub import hf_hub_download

    path = Path(checkpoint)
    for found in (path, path / file_name):
        if found.is_file():
            return found
    if path.is_dir() or path.suffix or checkpoint.count("/") != 1:
        raise FileNotFoundError(
            f"{key} is {checkpoint!r}, where no {file_name} is; give the path of that file, its"
            " directory, or the hub id (owner/name) of a repository that has it."
        )
    try:
        return Path(hf_hub_download(checkpoint, file_name))
    except OSError as error:
        absence = explain_absence(checkpoint, error)
        raise NotHereError(f"{key} needs {file_name} of that repository: {absence}") from None


def read_weights(
    path: Path, key: str, within: str | None = None, device: str | torch.device = "cpu"
) -> dict[str, Tensor]:
    """Tensors by name, of a safetensors file or one that torch wrote, of which nothing is executed:
    it is read with `weights_only`. Where it holds a dict of several things, the weights are
    `within` one of them; messages name the configuration `key`. Raises ValueError: the file is
    truncated, not such a dict, or contains more than weights."""
    import torch
    from safetensors.torch import load_file

    form = "a dict of weights" if within is None else f"a dict with {within}"
    damaged = (RuntimeError, EOFError, LookupError, TypeError, ValueError, UnpicklingError)
    try:
        if path.suffix == ".safetensors":
            return load_file(path, device=str(device))
        stored = torch.load(path, map_location=device, weights_only=True)
        return dict(stored if within is None else stored[within])
    except (*damaged, SafetensorError) as error:
        raise ValueError(
            f"{key} {path} is not a readable checkpoint ({form}): {error!r}. It may be truncated;"
            " remove it and fetch it again."
        ) from error


def fill_network(
    network: torch.nn.Module,
    weights: Mapping[str, Any],
    what: str,
    stale: tuple[str, ...] = (),
    assign: bool = False,
) -> None:
    """Load all weights of a network, by the names in its state, without those that end in a `stale`
    suffix. `what` begins messages: "… does not fit …". `assign` takes the tensors themselves, for a
    network whose own hold no memory. Raises ValueError: a weight is missing, unknown or has another
    shape."""
    try:
        result = network.load_state_dict(weights, strict=False, assign=assign)
    except RuntimeError as error:
        raise ValueError(f"{what}: {error}") from error
    unexpected = [name for name in result.unexpected_keys if not name.endswith(stale or ("\0",))]
    if result.missing_keys or unexpected:
        raise ValueError(f"{what}: missing {result.missing_keys[:5]}, unexpected {unexpected[:5]}.")
