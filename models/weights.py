"""Reading, checking and writing the tensors of a checkpoint directory.

Every error says which file or tensor is wrong and what to do about it. Tensors can be written
later, by another thread, while training goes on:

    with defer_writes() as writes:
        policy.save(folder)  # copies the tensors, and writes everything else
    for write in writes:  # in a thread
        write()
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import torch
from huggingface_hub import save_torch_state_dict
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mmrl.config.settings_file import read_settings_file

INDEX_NAME = "model.safetensors.index.json"
PICKLED_NAME = "pytorch_model.bin"
DIFFUSERS_NAME = "diffusion_pytorch_model.safetensors"
WHOLE_NAMES = (
    "model.safetensors",
    "pytorch_model.safetensors",
    DIFFUSERS_NAME,
)

DTYPES = {name: getattr(torch, name) for name in ("float32", "bfloat16", "float16", "float64")}
_STORED = {
    **{"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "F64": torch.float64},
    **{"I64": torch.int64, "I32": torch.int32, "I8": torch.int8, "BOOL": torch.bool},
}
"""Dtypes by their names in safetensors, where they are known here."""


_writes: ContextVar[list[Callable[[], None]] | None] = ContextVar("deferred writes", default=None)


def resolve_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """A torch dtype from its name.

    Raises:
        ValueError: an unknown name.
    """
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}; allowed: {', '.join(DTYPES)}")
    return DTYPES[dtype]


class Header(NamedTuple):
    """What a file says of a tensor before it is read; `dtype` is a name where torch has none."""

    path: Path
    shape: torch.Size
    dtype: torch.dtype | str


def read_weights(
    directory: Path,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    pickled: bool = False,
    convert: Mapping[str, Callable[[Tensor], Tensor]] | None = None,
) -> dict[str, Tensor]:
    """Every tensor of a directory.

    The shards of an index win, then one safetensors file of a usual name, then all
    `*.safetensors`, then `pytorch_model.bin`.

    Args:
        directory: an existing one.
        dtype: converted to, tensor by tensor; None keeps the stored ones.
        device: where the tensors go.
        pickled: whether `pytorch_model.bin` is accepted. Only tensors are read from it, never code.
        convert: what to make of some tensors, by name, before the next is read.

    Raises:
        FileNotFoundError: the directory holds no weights, or lacks a shard of its index.
        ValueError: a file is truncated or not what its name says, or a value is not finite.
    """
    return {
        name: (convert or {}).get(name, _keep)(tensor)
        for path in _files(directory, pickled)
        for name, tensor in read_tensors(path, device, dtype)
    }


def _keep(tensor: Tensor) -> Tensor:
    return tensor


def read_headers(directory: Path, pickled: bool = False) -> dict[str, Header]:
    """What the files of a directory say of their tensors.

    Of safetensors only the headers are read, which also say how long the file has to be.

    Args:
        directory: an existing one.
        pickled: whether `pytorch_model.bin`, which has no header, is accepted.

    Raises:
        FileNotFoundError, ValueError: see `read_weights`.
    """
    found = {}
    for path in _files(directory, pickled):
        found |= read_header(path)
    return found


def read_header(path: Path) -> dict[str, Header]:
    """What a file says of its tensors; errors of `read_tensors`."""
    if path.name == PICKLED_NAME:
        return {name: Header(path, t.shape, t.dtype) for name, t in _read_pickled(path).items()}
    found = {}
    with _open(path) as file:
        for name in file.keys():  # noqa: SIM118
            part = file.get_slice(name)
            dtype = _STORED.get(part.get_dtype(), part.get_dtype())
            found[name] = Header(path, torch.Size(part.get_shape()), dtype)
    return found


def read_tensors(
    path: Path, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a file, one at a time, so that a conversion never holds two copies of it.
    Safetensors are read straight to a GPU.

    Raises:
        ValueError: it is truncated or not what its name says, or a value is not finite in `dtype`.
    """
    if path.name == PICKLED_NAME:
        for name, tensor in _read_pickled(path).items():
            yield name, check_finite(tensor.to(device, dtype), path, name)
        return
    # of other devices safetensors knows some by other names than torch: cpu:0
    place = str(device) if torch.device(device).type == "cuda" else "cpu"
    with _open(path, place) as file:
        for name in file.keys():  # noqa: SIM118
            yield name, check_finite(file.get_tensor(name).to(device, dtype), path, name)


def read_rows(path: Path, name: str, rows: slice) -> Tensor:
    """Some rows of a tensor of a safetensors file, as a view of the mapped file; the file is mapped
    as long as the view exists. Their values are not checked, see `check_finite`.

    Raises:
        ValueError: the file is truncated or not what its name says.
    """
    with _open(path) as file:
        return file.get_slice(name)[rows]


def check_finite(tensor: Tensor, path: Path, name: str) -> Tensor:
    """A tensor as it is, whose values are all finite.

    The least and the largest value tell: they take one pass and no memory beside the tensor, and
    NaN wins over numbers.

    Args:
        tensor: on any device.
        path: file that it is from.
        name: its name there.

    Raises:
        ValueError: it holds NaN or infinity.
    """
    if not tensor.is_floating_point() or not tensor.numel():
        return tensor
    if torch.stack(torch.aminmax(tensor.detach())).isfinite().all():
        return tensor
    nans, bad = int(tensor.isnan().sum()), int((~tensor.isfinite()).sum())
    raise ValueError(
        f"'{path}': {name} as {tensor.dtype} holds {nans} NaN and {bad - nans} infinite values of"
        f" {tensor.numel()}. The file is damaged, of training that diverged, or of a wider dtype:"
        " copy or download it again, take an earlier checkpoint, or load it in that dtype."
    )


def write_weights(
    tensors: Mapping[str, Tensor], directory: Path, name: str = "model.safetensors"
) -> None:
    """Write tensors as safetensors into an existing directory, in place of those it holds.

    One file of this name, or shards with an index where that would exceed 5 GB. Inside
    `defer_writes` copies of the tensors are written later.
    """
    own = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    kept, pattern = keep_tensors(own), name.replace(".safetensors", "{suffix}.safetensors")

    def write() -> None:
        save_torch_state_dict(kept, directory, filename_pattern=pattern, metadata={"format": "pt"})
        # safetensors makes files that only their owner can read
        for path in directory.glob(pattern.format(suffix="*")):
            path.chmod(0o644)

    write_or_defer(write)


@contextmanager
def defer_writes() -> Iterator[list[Callable[[], None]]]:
    """Collect what `write_or_defer` is given in this thread, in place of calling it."""
    found: list[Callable[[], None]] = []
    token = _writes.set(found)
    try:
        yield found
    finally:
        _writes.reset(token)


def write_or_defer(write: Callable[[], None]) -> None:
    """Write a file, now or, inside `defer_writes`, when its caller calls what it has collected.

    Args:
        write: writes; its tensors must not change, see `keep_tensors`.
    """
    deferred = _writes.get()
    if deferred is None:
        write()
    else:
        deferred.append(write)


def keep_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors for `write_or_defer`: copies, where it defers."""
    if _writes.get() is None:
        return dict(tensors)
    return deepcopy(dict(tensors))  # which keeps what is shared shared


def check_weights(
    given: Mapping[str, Tensor | Header], expected: Mapping[str, Tensor], source: str
) -> None:
    """Raise a ValueError for what `list_differences` lists."""
    if problems := list_differences(given, expected):
        raise ValueError(
            f"The tensors of '{source}' do not fit the network of its config.json: {problems}."
            " Check that config.json belongs to these weights."
        )


def list_differences(given: Mapping[str, Tensor | Header], expected: Mapping[str, Tensor]) -> str:
    """The tensors that are missing, unexpected, of the wrong shape, or of a dtype that weights do
    not have: they would be read as other numbers than were meant."""
    both = sorted(given.keys() & expected.keys())
    found = {
        "missing": sorted(expected.keys() - given.keys()),
        "unexpected": sorted(given.keys() - expected.keys()),
        "of the wrong shape": [
            f"{key} is {tuple(given[key].shape)}, expected {tuple(expected[key].shape)}"
            for key in both
            if given[key].shape != expected[key].shape
        ],
        f"of another dtype than {', '.join(DTYPES)}": [
            f"{key} is {given[key].dtype}" + _in_file(given[key])
            for key in both
            if not is_weight(given[key], expected[key])
        ],
    }
    return "; ".join(
        f"{len(keys)} {kind}: {list_first(keys)}" for kind, keys in found.items() if keys
    )


def _in_file(tensor: Tensor | Header) -> str:
    return f" in '{tensor.path}'" if isinstance(tensor, Header) else ""


def is_weight(given: Tensor | Header, expected: Tensor) -> bool:
    """Whether a tensor has a dtype of weights, or that of an expected one that holds integers."""
    allowed = DTYPES.values() if expected.is_floating_point() else (expected.dtype,)
    return given.dtype in allowed


def _files(directory: Path, pickled: bool) -> Iterable[Path]:
    if (directory / INDEX_NAME).is_file():
        return _shards(directory / INDEX_NAME)
    whole = [directory / name for name in WHOLE_NAMES if (directory / name).is_file()]
    files = whole[:1] or sorted(directory.glob("*.safetensors"))
    if not files and pickled and (directory / PICKLED_NAME).is_file():
        return [directory / PICKLED_NAME]
    if not files:
        also = f" or {PICKLED_NAME}" if pickled else ""
        raise FileNotFoundError(f"'{directory}' holds no weights: expected *.safetensors{also}.")
    return files


def _shards(index: Path) -> list[Path]:
    places = read_settings_file(index).get("weight_map")
    named = list(places.values()) if isinstance(places, dict) else [places]
    outside = {str(name) for name in named if not isinstance(name, str) or Path(name).name != name}
    if outside:
        raise ValueError(
            f"'{index}' names {list_first(sorted(outside))} in weight_map: a shard must be a file"
            " beside it. Copy or download the index again."
        )
    names = sorted(set(named))
    absent = [name for name in names if not (index.parent / name).is_file()]
    if absent:
        raise FileNotFoundError(
            f"'{index}' names {len(absent)} shards that are not there: {list_first(absent)}."
            " Copy or download them again."
        )
    return [index.parent / name for name in names]


@contextmanager
def _open(path: Path, device: str = "cpu") -> Iterator[Any]:
    try:
        if not path.is_file():  # to open a pipe waits for ever
            raise OSError("it is no regular file")
        with safe_open(path, framework="pt", device=device) as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise ValueError(_unreadable(path, error)) from error


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
        f"'{path}' cannot be read ({type(error).__name__}: {error}); it is truncated or not what"
        " its name says. Copy or download it again."
    )


def list_first(names: list[str], limit: int = 8) -> str:
    """The first of some names, and how many more there are."""
    rest = f", and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest
