"""The tensors of a checkpoint, read when they are needed, and of each only the rows that are.

A network whose weights are not read yet is on the meta device and holds where they are
(`Network.stored`). Processes that share one copy of it then each read their own rows.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmrl.models.weights import check_finite, read_rows


@dataclass
class StoredWeights:
    """Tensors by the names of the core.

    Attributes:
        files: file of each tensor, and its name there.
        dtype: that they are converted to.
        device: where the network will be.
    """

    files: dict[str, tuple[Path, str]]
    dtype: torch.dtype
    device: torch.device

    def read(self, name: str) -> Tensor:
        """A whole tensor in `dtype` on `device`.

        It may be a view of a file, which is mapped as long as the tensor exists. Raises ValueError:
        the file was damaged since its header was read, or a value is not finite."""
        path, key = self.files[name]
        tensor = read_rows(path, key, slice(None)).to(self.device, self.dtype)
        return check_finite(tensor, path, key)

    def copy_rows(self, name: str, rows: slice, target: Tensor) -> None:
        """Copy some rows of a tensor into `target`, rounded to `dtype` whatever the dtype of
        `target` is; errors as in `read`."""
        self._copy(name, read_rows(*self.files[name], rows), target)

    def copy_elements(self, name: str, shape: torch.Size, start: int, target: Tensor) -> None:
        """Copy elements of a flattened tensor of this shape, from `start` on, into `target` [n],
        where n may be 0; otherwise as `copy_rows`."""
        if not target.numel():
            return
        width = math.prod(shape[1:])
        first, last = start // width, -(-(start + target.numel()) // width)
        found = read_rows(*self.files[name], slice(first, last)).reshape(-1)
        skipped = start - first * width
        self._copy(name, found[skipped : skipped + target.numel()], target)

    @torch.no_grad()
    def _copy(self, name: str, tensor: Tensor, target: Tensor) -> None:
        # mostly no second tensor is made: thousands of these would leave holes in the heap
        target.copy_(tensor if target.dtype == self.dtype else tensor.to(self.dtype))
        check_finite(target, *self.files[name])  # where it is now, and this process's part alone

    def __deepcopy__(self, _: Any) -> "StoredWeights":
        return self  # copies of a network read the same files
