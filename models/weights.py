"""Reading, checking and writing the tensors of a checkpoint directory.

Every error says which file or tensor is wrong and what to do about it. Tensors can be written
later, by another thread, while training goes on:

    with defer_writes() as writes:
        policy.save(folder)  # copies the tensors, and writes everything else
    for write in writes:  # in a thread
        write()
"""

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from pathlib import Path

import torch
from huggingface_hub import save_torch_state_dict
from safetensors import SafetensorError, safe_open
from torch import Tensor

INDEX_NAME = "model.safetensors.index.json"
PICKLED_NAME = "pytorch_model.bin"
DIFFUSERS_NAME = "diffusion_pytorch_model.safetensors"
WHOLE_NAMES = (
    "model.safetensors",
    "pytorch_model.safetensors",
    DIFFUSERS_NAME,
)

DTYPES = {name: getattr(torch, name) for name in ("float32", "bfloat16", "float16", "float64")}


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
        ValueError: a file is truncated or not what its name says.
    """
    return {
        name: (convert or {}).get(name, _keep)(tensor.to(device, dtype))
        for path in _files(directory, pickled)
        for name, tensor in read_tensors(path, device)
    }


def _keep(tensor: Tensor) -> Tensor:
    return tensor


def read_headers(directory: Path, pickled: bool = False) -> dict[str, Tensor]:
    """Every tensor of a directory on the meta device: its name and shape, for all files at once.

    Of safetensors only the headers are read, which also say how long the file has to be.

    Args:
        directory: an existing one.
        pickled: whether `pytorch_model.bin`, which has no header, is accepted.

    Raises:
        FileNotFoundError, ValueError: see `read_weights`.
    """
    return {
        name: torch.empty(shape, device="meta")
        for path in _files(directory, pickled)
        for name, shape in read_shapes(path)
    }


def locate_tensors(directory: Path) -> dict[str, Path]:
    """The safetensors file of every tensor of a directory; errors of `read_weights`."""
    return {name: path for path in _files(directory, False) for name, _ in read_shapes(path)}


def read_rows(path: Path, name: str, rows: slice) -> Tensor:
    """Some rows of a tensor of a safetensors file, as a view of the mapped file; the file is mapped
    as long as the view exists.

    Raises:
        ValueError: the file is truncated or not what its name says.
    """
    try:
        with safe_open(path, framework="pt") as file:
            return file.get_slice(name)[rows]
    except (SafetensorError, OSError) as error:
        raise ValueError(_unreadable(path, error)) from error


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


def check_weights(given: Mapping[str, Tensor], expected: Mapping[str, Tensor], source: str) -> None:
    """Compare names and shapes.

    Raises:
        ValueError: lists the missing, unexpected and wrongly shaped tensors.
    """
    shapes = [
        f"{key} is {tuple(given[key].shape)}, expected {tuple(expected[key].shape)}"
        for key in sorted(given.keys() & expected.keys())
        if given[key].shape != expected[key].shape
    ]
    found = {
        "missing": sorted(expected.keys() - given.keys()),
        "unexpected": sorted(given.keys() - expected.keys()),
        "of the wrong shape": shapes,
    }
    problems = [f"{len(keys)} {kind}: {list_first(keys)}" for kind, keys in found.items() if keys]
    if problems:
        raise ValueError(
            f"The tensors of '{source}' do not fit the network of its config.json: "
            f"{'; '.join(problems)}. Check that config.json belongs to these weights."
        )


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
    try:
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (json.JSONDecodeError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(_unreadable(index, error)) from error
    outside = [name for name in names if Path(name).name != name]
    if outside:
        raise ValueError(
            f"'{index}' names {list_first(outside)}: a shard must be a file beside it. Copy or"
            " download the index again."
        )
    absent = [name for name in names if not (index.parent / name).is_file()]
    if absent:
        raise FileNotFoundError(
            f"'{index}' names {len(absent)} shards that are not there: {list_first(absent)}."
            " Copy or download them again."
        )
    return [index.parent / name for name in names]


def read_tensors(path: Path, device: torch.device | str = "cpu") -> Iterator[tuple[str, Tensor]]:
    """The tensors of a file, one at a time, so that a conversion never holds two copies of it.
    Safetensors are read straight to a GPU.

    Raises:
        ValueError: it is truncated or not what its name says.
    """
    if path.name == PICKLED_NAME:
        yield from _read_pickled(path).items()
        return
    # of other devices safetensors knows some by other names than torch: cpu:0
    place = str(device) if torch.device(device).type == "cuda" else "cpu"
    try:
        with safe_open(path, framework="pt", device=place) as file:
            for name in file.keys():  # noqa: SIM118
                yield name, file.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise ValueError(_unreadable(path, error)) from error


def read_shapes(path: Path) -> list[tuple[str, Sequence[int]]]:
    """Names and shapes of the tensors of a file; arguments and errors of `read_tensors`."""
    if path.name == PICKLED_NAME:
        return [(name, tensor.shape) for name, tensor in _read_pickled(path).items()]
    try:
        with safe_open(path, framework="pt") as file:
            return [(name, file.get_slice(name).get_shape()) for name in file.keys()]  # noqa: SIM118
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
