"""The tensors of a checkpoint, read when they are needed, and of each only the rows that are.

A network whose weights are not read yet is on the meta device and holds where they are
(`Network.stored`). Processes that share one copy of it then each read their own rows.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmrl.models.adapter_weights import Adapter, merge_layer
from mmrl.models.weights import check_finite, read_rows


@dataclass
class StoredWeights:
    """Tensors by the names of the core.

    Attributes:
        files: file of each tensor, and its name there.
        dtype: that they are converted to.
        device: where the network will be.
        adapter: added to them.
    """

    files: Mapping[str, tuple[Path, str]]
    dtype: torch.dtype
    device: torch.device
    adapter: Adapter = Adapter({}, {}, 1.0)

    def read(self, name: str) -> Tensor:
        """A whole tensor in `dtype` on `device`.

        It may be a view of a file, which is mapped as long as the tensor exists.

        Raises:
            ValueError: the file was damaged since its header was read, or a value is not finite.
        """
        return check_finite(
            self._find(name, slice(None)).to(self.device, self.dtype), *self.files[name]
        )

    def copy_rows(self, name: str, rows: slice, target: Tensor) -> None:
        """Copy some rows of a tensor; arguments and errors as in `read`.

        Args:
            name: of the tensor.
            rows: which.
            target: where to; what it holds is rounded to `dtype`, whatever its own dtype is.
        """
        self._copy(name, self._find(name, rows), target)

    def copy_elements(self, name: str, shape: torch.Size, start: int, target: Tensor) -> None:
        """Copy elements of a flattened tensor; otherwise as `copy_rows`.

        Args:
            name: of the tensor.
            shape: of it.
            start: the first element.
            target: [n], where to; n may be 0.
        """
        if not target.numel():
            return
        width = math.prod(shape[1:])
        first, last = start // width, -(-(start + target.numel()) // width)
        found = self._find(name, slice(first, last)).reshape(-1)
        skipped = start - first * width
        self._copy(name, found[skipped : skipped + target.numel()], target)

    @torch.no_grad()
    def _copy(self, name: str, tensor: Tensor, target: Tensor) -> None:
        # mostly no second tensor is made: thousands of these would leave holes in the heap
        target.copy_(tensor if target.dtype == self.dtype else tensor.to(self.dtype))
        check_finite(target, *self.files[name])  # where it is now, and this process's part alone

    def _find(self, name: str, rows: slice) -> Tensor:
        """Rows as they are stored. A layer with an adapter is read whole: the product of some rows
        alone may be rounded differently."""
        parts = self.adapter.layers.get(name.removesuffix(".weight"))
        wanted = slice(None) if parts else rows
        full = self.adapter.full
        tensor = full[name][wanted] if name in full else read_rows(*self.files[name], wanted)
        if not parts:
            return tensor
        weight = tensor.to(self.device, self.dtype)
        return merge_layer(weight, parts, self.adapter.scaling)[rows]

    def __deepcopy__(self, _: Any) -> "StoredWeights":
        return self  # copies of a network read the same files
