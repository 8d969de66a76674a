"""Reading and writing the tensors of a tokenizer directory, with errors a user can act on."""

import pickle
from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

WEIGHTS_NAME = "model.safetensors"
PICKLED_NAME = "pytorch_model.bin"
KNOWN_NAMES = (WEIGHTS_NAME, "pytorch_model.safetensors", "diffusion_pytorch_model.safetensors")


def find_directory(path_or_hub_id: str | Path) -> Path:
    """Return a local directory holding the tokenizer, downloading it when it is a hub id.

    Args:
        path_or_hub_id: an existing directory, or else a Hugging Face hub id such as
            `showlab/magvitv2`.

    Raises:
        FileNotFoundError: neither a directory nor a reachable hub id.
    """
    path = Path(path_or_hub_id).expanduser()
    if path.is_dir():
        return path
    try:
        return _download(str(path_or_hub_id))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise FileNotFoundError(
            f"'{path_or_hub_id}' is neither an existing directory nor a tokenizer that the "
            f"Hugging Face hub returned ({type(error).__name__}: {reason[0]}). Give the path of a "
            "directory with config.json and *.safetensors, or a hub id such as showlab/magvitv2."
        ) from error


def read_weights(directory: Path) -> dict[str, Tensor]:
    """Read every tensor of a directory.

    One safetensors file of a usual name wins, then all `*.safetensors`, then `pytorch_model.bin`.

    Raises:
        FileNotFoundError: the directory holds neither.
        ValueError: a file is truncated or not what its name says.
    """
    named = [directory / name for name in KNOWN_NAMES if (directory / name).is_file()]
    shards = named[:1] or sorted(directory.glob("*.safetensors"))
    if not shards and (directory / PICKLED_NAME).is_file():
        return _read_pickled(directory / PICKLED_NAME)
    if not shards:
        raise FileNotFoundError(
            f"'{directory}' holds no weights: expected *.safetensors or {PICKLED_NAME}."
        )
    tensors: dict[str, Tensor] = {}
    for shard in shards:
        try:
            tensors.update(load_file(shard))
        except (SafetensorError, OSError) as error:
            raise ValueError(_unreadable(shard, error)) from error
    return tensors


def write_weights(tensors: dict[str, Tensor], directory: Path) -> None:
    """Write tensors as one `model.safetensors` into an existing directory."""
    contiguous = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    path = directory / WEIGHTS_NAME
    save_file(contiguous, path, metadata={"format": "pt"})
    # safetensors makes files that only their owner can read.
    path.chmod(0o644)


def check_weights(given: dict[str, Tensor], expected: dict[str, Tensor], source: str) -> None:
    """Raise ValueError listing every missing, unexpected and wrongly shaped tensor."""
    missing = sorted(expected.keys() - given.keys())
    unexpected = sorted(given.keys() - expected.keys())
    shapes = [
        f"{key} is {tuple(given[key].shape)}, expected {tuple(expected[key].shape)}"
        for key in sorted(given.keys() & expected.keys())
        if given[key].shape != expected[key].shape
    ]
    problems = [
        f"{len(keys)} {name}: {_first(keys)}"
        for name, keys in (
            ("missing", missing),
            ("unexpected", unexpected),
            ("of the wrong shape", shapes),
        )
        if keys
    ]
    if problems:
        raise ValueError(
            f"The tensors of '{source}' do not fit the network of its config.json: "
            f"{'; '.join(problems)}. Check that config.json belongs to these weights."
        )


def _download(hub_id: str) -> Path:
    directory = Path(snapshot_download(hub_id, allow_patterns=["config.json", "*.safetensors"]))
    if not list(directory.glob("*.safetensors")):
        directory = Path(snapshot_download(hub_id, allow_patterns=["config.json", PICKLED_NAME]))
    return directory


def _read_pickled(path: Path) -> dict[str, Tensor]:
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError, OSError) as error:
        raise ValueError(_unreadable(path, error)) from error
    if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
        raise ValueError(f"'{path}' is not a dictionary of tensors; export it as safetensors.")
    return tensors


def _unreadable(path: Path, error: Exception) -> str:
    return (
        f"'{path}' cannot be read ({error}); it is truncated or not a weights file. "
        "Copy or download it again."
    )


def _first(names: list[str], limit: int = 8) -> str:
    rest = f", and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest
