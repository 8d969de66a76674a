"""Checkpoint files of rewards: found by path or hub id, read without running their code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from mmrl.config import NotHereError
from mmrl.config.checks import explain_absence

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def find_checkpoint(checkpoint: str, file_name: str, key: str) -> Path:
    """The checkpoint file named by a path, a directory or a hub id (downloaded if necessary).

    Args:
        checkpoint: the file, a directory that holds `file_name`, or a hub id of one that does.
        file_name: as it is published.
        key: configuration key, for messages.

    Raises:
        FileNotFoundError: nothing is there.
        NotHereError: a hub id whose file is not here and cannot be downloaded.
    """
    path = Path(checkpoint)
    if path.is_file():
        return path
    if path.is_dir():
        if (path / file_name).is_file():
            return path / file_name
        raise FileNotFoundError(f"{key}: the directory {path} holds no {file_name}.")
    if path.suffix or checkpoint.count("/") != 1:
        raise FileNotFoundError(
            f"{key} is {checkpoint!r}, which is not a file; give the path of {file_name}, its"
            " directory, or the hub id (owner/name) of a repository that has it."
        )
    return _download(checkpoint, file_name, key)


def read_weights(path: Path, key: str, within: str | None = None) -> dict[str, Tensor]:
    """Tensors by name, on the CPU.

    Args:
        path: a file that torch wrote. Nothing in it is executed: it is read with `weights_only`.
        key: configuration key, for messages.
        within: where the file holds a dict of several things, the name of the weights in it.

    Raises:
        ValueError: the file is truncated, not such a dict, or contains more than weights.
    """
    import torch

    form = "a dict of weights" if within is None else f"a dict with {within}"
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
        return dict(stored if within is None else stored[within])
    except (RuntimeError, EOFError, LookupError, TypeError, ValueError, UnpicklingError) as error:
        raise ValueError(
            f"{key} {path} is not a readable checkpoint ({form}): {error!r}. It may be truncated;"
            " remove it and fetch it again."
        ) from error


def read_safetensors(path: Path, key: str, device: torch.device) -> dict[str, Tensor]:
    """Tensors by name of a safetensors file, read to a device.

    Raises:
        ValueError: the file is truncated or no such file.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path, device=str(device))
    except SafetensorError as error:
        raise ValueError(
            f"{key} {path} is not a readable safetensors file: {error}. It may be truncated; remove"
            " it and fetch it again."
        ) from error


def fill_network(
    network: torch.nn.Module,
    weights: Mapping[str, Any],
    what: str,
    stale: tuple[str, ...] = (),
    assign: bool = False,
) -> None:
    """Load all weights of a network.

    Args:
        network: receives the weights.
        weights: by the names in the state of the network.
        what: begins messages: "… does not fit …".
        stale: suffixes of names in checkpoints that are ignored.
        assign: take the tensors themselves, for a network whose own hold no memory.

    Raises:
        ValueError: a weight is missing, unknown or has another shape.
    """
    try:
        result = network.load_state_dict(weights, strict=False, assign=assign)
    except RuntimeError as error:
        raise ValueError(f"{what}: {error}") from error
    unexpected = [name for name in result.unexpected_keys if not name.endswith(stale or ("\0",))]
    if result.missing_keys or unexpected:
        raise ValueError(f"{what}: missing {result.missing_keys[:5]}, unexpected {unexpected[:5]}.")


def _download(hub_id: str, file_name: str, key: str) -> Path:
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(hub_id, file_name))
    except OSError as error:
        absence = explain_absence(hub_id, error)
        raise NotHereError(f"{key} needs {file_name} of that repository: {absence}") from None
