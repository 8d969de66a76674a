"""What a GPU would be asked for, counted on the CPU: kernels, and waits of the host for the device.

A wait is a number read back, a copy from or to the host that is not marked as non-blocking, or an
operator whose result has a size that depends on data: nonzero, bool indices, unique.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ROOT = Path(__file__).resolve().parents[1]
READS = {"_local_scalar_dense", "equal", "is_nonzero"}
SIZED = {"nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "bincount"}
INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_"}
FREE = {"_unsafe_view", "promote_types", "empty", "empty_like", "new_empty", "empty_strided"}
FREE |= {"detach", "lift_fresh", "alias"}
COPIES = {Tensor.tolist, Tensor.cpu, Tensor.numpy, Tensor.new_tensor}
FUSED = {F.rms_norm}
"""Functions that are one kernel on a GPU and several operators here."""


class DeviceCounts:
    """Counts within the context.

    Attributes:
        waits: (place, kind) -> number, where a place is `file:line` of the project.
        launches: place -> number of kernels.
    """

    def __init__(self) -> None:
        self.waits: Counter[tuple[str, str]] = Counter()
        self.launches: Counter[str] = Counter()
        self.fused = False
        self.modes = (_Functions(self), _Operators(self))

    def __enter__(self) -> DeviceCounts:
        for mode in self.modes:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self.modes):
            mode.__exit__(*error)

    def table(self) -> str:
        """The counts by line, most first."""
        waits = [f"{n:6} {kind} at {place}" for (place, kind), n in self.waits.most_common()]
        launches = [f"{n:6} launches at {place}" for place, n in self.launches.most_common(40)]
        return "\n".join([*waits, *launches])


class _Functions(TorchFunctionMode):
    """Copies between host and device, which operators on one device do not show."""

    def __init__(self, counts: DeviceCounts) -> None:
        super().__init__()
        self.counts = counts

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in COPIES or _moves(function, args, kwargs):
            self.counts.waits[find_place(), function.__name__] += 1
        if function not in FUSED or self.counts.fused:
            return function(*args, **kwargs)
        self.counts.launches[find_place()] += 1
        self.counts.fused = True
        try:
            return function(*args, **kwargs)
        finally:
            self.counts.fused = False


def _moves(function: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call copies host data to a device, or a tensor between devices."""
    if function is torch.tensor:
        return kwargs.get("device") is not None
    if function is Tensor.to:
        named = any(isinstance(each, torch.device | str) for each in (*args[1:], *kwargs.values()))
        return named and not kwargs.get("non_blocking")
    if function in (Tensor.__getitem__, Tensor.__setitem__):
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        return any(isinstance(each, list) for each in index)
    return False


class _Operators(TorchDispatchMode):
    def __init__(self, counts: DeviceCounts) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = function.overloadpacket.__name__
        if name in READS | SIZED or (name in INDEXED and _by_mask(args[1])):
            self.counts.waits[find_place(), name] += 1
        returns = function._schema.returns
        is_view = any(each.alias_info and not each.alias_info.is_write for each in returns)
        if not (is_view or name in FREE | READS or self.counts.fused):
            self.counts.launches[find_place()] += 1
        return function(*args, **(kwargs or {}))


def _by_mask(indices: Any) -> bool:
    return any(
        isinstance(each, Tensor) and each.dtype == torch.bool for each in tree_leaves(indices)
    )


class LargestLogits(TorchDispatchMode):
    """Bytes of the largest result with `columns` columns, one for each row of the vocabulary, the
    transposed output matrix of `width` rows apart."""

    def __init__(self, columns: int, width: int | None = None) -> None:
        super().__init__()
        self.columns, self.width, self.size = columns, width, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for each in tree_leaves(found):
            shape = each.shape if isinstance(each, Tensor) else ()
            if shape[-1:] == (self.columns,) and shape[0] != self.width:
                self.size = max(self.size, each.numel() * each.itemsize)
        return found


def find_place() -> str:
    """File and line of the innermost call of the project."""
    frame, own = sys._getframe(1), (str(ROOT / "tests"), str(ROOT / ".venv"))
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(str(ROOT)) and not path.startswith(own):
            return f"{Path(path).relative_to(ROOT)}:{frame.f_lineno}"
        frame = frame.f_back
    return "elsewhere"
