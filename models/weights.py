"""Reading, checking and writing the tensors of a checkpoint directory.

Every error says which file or tensor is wrong and what to do about it. Tensors can be written
later, by another thread, while training goes on: see `defer_writes`.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mmrl.config.settings_file import read_settings_file
from mmrl.models.source import PICKLED_NAME

INDEX_NAME = "model.safetensors.index.json"
DIFFUSERS_NAME = "diffusion_pytorch_model.safetensors"
DTYPES = {name: getattr(torch, name) for name in ("float32", "bfloat16", "float16", "float64")}
_STORED = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_STORED |= {"F64": torch.float64, "I64": torch.int64}
"""Dtypes of weights and of tables of integers, by their names in files."""
BUILD_ERRORS = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RuntimeError)
"""What layers raise for sizes that no network can have."""

_TORN = "; it is truncated or not what its name says. Copy or download it again."
_writes: ContextVar[list[Callable[[], None]] | None] = ContextVar("deferred writes", default=None)


def resolve_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """A torch dtype from its name. Raises ValueError: an unknown name."""
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}; allowed: {', '.join(DTYPES)}")
    return DTYPES[dtype]


def read_weights(directory: Path, pickled: bool = False) -> dict[str, Tensor]:
    """Every tensor of a directory: of the shards of an index, else of one safetensors file of a
    usual name, else of all `*.safetensors`, else, where `pickled`, of `pytorch_model.bin`, of which
    tensors alone are read, never code. Raises FileNotFoundError: no weights, or a shard is missing.
    Raises ValueError: a damaged file, or a value that is not finite."""
    files = _files(directory, pickled)
    return {name: tensor for path in files for name, tensor in read_tensors(path).items()}


def read_headers(directory: Path, pickled: bool = False) -> dict[str, Tensor]:
    """Every tensor of a directory on the meta device, from the headers of safetensors alone; errors
    of `read_weights`, and a dtype that weights do not have."""
    files = _files(directory, pickled)
    return {name: tensor for path in files for name, tensor in read_header(path).items()}


def locate_tensors(directory: Path) -> dict[str, Path]:
    """The safetensors file of every tensor of a directory; errors of `read_headers`."""
    return {name: path for path in _files(directory, False) for name in read_header(path)}


def read_header(path: Path) -> dict[str, Tensor]:
    """The tensors of a file on the meta device. Raises ValueError: see `read_tensors`; also a dtype
    that weights do not have, which would be read as other numbers."""
    if path.name == PICKLED_NAME:
        found: dict[str, Any] = {n: (t.shape, t.dtype) for n, t in _read_pickled(path).items()}
    else:
        with _open(path) as file:
            parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            found = {name: (p.get_shape(), p.get_dtype()) for name, p in parts.items()}
    tensors = {}
    for name, (shape, kind) in found.items():
        dtype = _STORED.get(kind, kind)
        if dtype not in _STORED.values():
            raise ValueError(
                f"'{path}': {name} is {dtype}; weights are {', '.join(DTYPES)}. Take a checkpoint"
                " that is not quantised or converted."
            )
        tensors[name] = torch.empty(shape, dtype=dtype, device="meta")
    return tensors


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, of safetensors as views of it. Raises ValueError: it is truncated or
    not what its name says, or a value is not finite."""
    if path.name == PICKLED_NAME:
        tensors = _read_pickled(path)
    else:
        with _open(path) as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return {name: check_finite(tensor, path, name) for name, tensor in tensors.items()}


def read_rows(path: Path, name: str, rows: slice) -> Tensor:
    """Some rows of a tensor of a safetensors file, as a view of the mapped file. Their values are
    not checked. Raises ValueError: the file is truncated or not what its name says."""
    with _open(path) as file:
        return file.get_slice(name)[rows]


def check_finite(tensor: Tensor, path: Path, name: str) -> Tensor:
    """A tensor as it is, with its file and its name there. Raises ValueError: it holds NaN or
    infinity; the least and the largest value tell, for NaN wins over numbers."""
    numbers = tensor.is_floating_point() and tensor.numel()
    if not numbers or torch.stack(torch.aminmax(tensor.detach())).isfinite().all():
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
    """Write tensors as safetensors into an existing directory, in place of those it holds: a file,
    or shards with an index above 5 GB; inside `defer_writes` copies of them, later."""
    own = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # deepcopy keeps what is shared shared
    kept = own if _writes.get() is None else deepcopy(own)
    pattern = name.replace(".safetensors", "{suffix}.safetensors")

    def write() -> None:
        save_torch_state_dict(kept, directory, filename_pattern=pattern, metadata={"format": "pt"})
        # safetensors makes files that only their owner can read
        for path in directory.glob(pattern.format(suffix="*")):
            path.chmod(0o644)

    write_or_defer(write)


@contextmanager
def defer_writes() -> Iterator[list[Callable[[], None]]]:
    """Collect what `write_or_defer` is given in this thread, in place of calling it: tensors are
    copied, and `for write in writes: write()` writes them, in any thread."""
    found: list[Callable[[], None]] = []
    token = _writes.set(found)
    try:
        yield found
    finally:
        _writes.reset(token)


def write_or_defer(write: Callable[[], None]) -> None:
    """Write a file, now or, inside `defer_writes`, when its caller calls what it has collected."""
    deferred = _writes.get()
    if deferred is None:
        write()
    else:
        deferred.append(write)


def check_weights(given: Mapping[str, Tensor], expected: Mapping[str, Tensor], source: str) -> None:
    """Raise a ValueError for what `list_differences` lists."""
    if problems := list_differences(given, expected):
        raise ValueError(
            f"The tensors of '{source}' do not fit the network of its config.json: {problems}."
            " Check that config.json belongs to these weights."
        )


def list_differences(given: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str:
    """The tensors that are missing, unexpected, or of the wrong shape or kind of numbers."""

    def show(tensor: Tensor) -> str:
        return f"{tuple(tensor.shape)}{'' if tensor.is_floating_point() else ' of integers'}"

    both = [(key, show(given[key]), show(expected[key])) for key in given if key in expected]
    found = {
        "missing": sorted(expected.keys() - given.keys()),
        "unexpected": sorted(given.keys() - expected.keys()),
        "of the wrong shape": [f"{k} is {a}, expected {b}" for k, a, b in sorted(both) if a != b],
    }
    problems = [f"{len(keys)} {kind}: {list_first(keys)}" for kind, keys in found.items() if keys]
    return "; ".join(problems)


def _files(directory: Path, pickled: bool) -> Iterable[Path]:
    if (directory / INDEX_NAME).is_file():
        return _shards(directory / INDEX_NAME)
    usual = ("model.safetensors", "pytorch_model.safetensors", DIFFUSERS_NAME)
    whole = [directory / name for name in usual if (directory / name).is_file()]
    files = whole[:1] or sorted(directory.glob("*.safetensors"))
    if not files and pickled and (directory / PICKLED_NAME).is_file():
        return [directory / PICKLED_NAME]
    if not files:
        raise FileNotFoundError(f"'{directory}' holds no weights: expected *.safetensors.")
    return files


def _shards(index: Path) -> list[Path]:
    places = read_settings_file(index).get("weight_map")
    named = {str(name) for name in places.values()} if isinstance(places, dict) else set()
    outside = sorted(name for name in named if Path(name).name != name)
    if outside or not named:
        raise ValueError(
            f"'{index}' names {list_first(outside) or 'nothing'} in weight_map: a shard must be a"
            " file beside it. Copy or download the index again."
        )
    if absent := sorted(name for name in named if not (index.parent / name).is_file()):
        raise FileNotFoundError(
            f"'{index}' names {len(absent)} shards that are not there: {list_first(absent)}."
            " Copy or download them again."
        )
    return [index.parent / name for name in sorted(named)]


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise ValueError(f"'{path}' cannot be read ({error}){_TORN}") from error


def _read_pickled(path: Path) -> dict[str, Tensor]:
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError, OSError) as error:
        raise ValueError(f"'{path}' cannot be read ({error}){_TORN}") from error
    if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
        raise ValueError(f"'{path}' is not a dictionary of tensors; export it as safetensors.")
    return tensors


@dataclass
class StoredWeights:
    """Tensors of a checkpoint by the names of the core, each with its file and its name there, that
    are read as `dtype` for `device` when they are needed. A network on the meta device holds this
    (`Network.stored`), and processes that share one copy of it each read their own rows."""

    files: dict[str, tuple[Path, str]]
    dtype: torch.dtype
    device: torch.device

    def read(self, name: str) -> Tensor:
        """A whole tensor in `dtype` on `device`, maybe a view of the file. Raises ValueError: the
        file was damaged since its header was read, or a value is not finite."""
        path, key = self.files[name]
        tensor = read_rows(path, key, slice(None)).to(self.device, self.dtype)
        return check_finite(tensor, path, key)

    @torch.no_grad()
    def copy_rows(self, name: str, rows: slice, target: Tensor) -> None:
        """Copy some rows of a tensor into `target`, rounded to `dtype` whatever the dtype of
        `target` is; errors as in `read`."""
        tensor = read_rows(*self.files[name], rows)
        # mostly no second tensor is made: thousands of these would leave holes in the heap
        target.copy_(tensor if target.dtype == self.dtype else tensor.to(self.dtype))
        check_finite(target, *self.files[name])  # where it is now, and this process's part alone

    def __deepcopy__(self, _: Any) -> "StoredWeights":
        return self  # copies of a network read the same files


def list_first(names: list[str]) -> str:
    """The first eight of some names, and how many more there are."""
    return ", ".join(names[:8]) + (f", and {len(names) - 8} more" if len(names) > 8 else "")
