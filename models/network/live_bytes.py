"""Memory of a computation, from shapes alone."""

import weakref
from collections import Counter
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """A context; `peak` is the most bytes of tensors alive at once that operations made in it."""

    def __init__(self) -> None:
        super().__init__()
        self.peak, self._now, self._held = 0, 0, Counter[int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                self._hold(storage._cdata, storage.nbytes(), 1)
                weakref.finalize(tensor, self._hold, storage._cdata, storage.nbytes(), -1)
        return made

    def _hold(self, storage: int, size: int, change: int) -> None:
        before, self._held[storage] = self._held[storage], self._held[storage] + change
        self._now += size * (bool(self._held[storage]) - bool(before))
        self.peak = max(self.peak, self._now)
