"""The machine's rate of matrix products, in shapes, precision and threads of a model."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from mmrl.models.network.core_config import CoreConfig
from mmrl.models.network.flops import PassSize, shapes


def products(core: CoreConfig, size: PassSize) -> dict[tuple[int, int, int], int]:
    """(rows, inputs, outputs) of the linear layers of a forward pass -> how many of them."""
    found: dict[tuple[int, int, int], int] = {}
    for role, (inputs, outputs) in shapes(core).items():
        last = size.tokens if role in "kv" else size.wanted
        for rows, number in ((size.tokens, core.num_layers - 1), (last, 1)):
            key = round(rows), inputs, outputs
            found[key] = found.get(key, 0) + number
    found[round(size.wanted), core.hidden_size, size.columns] = 1
    return {key: number for key, number in found.items() if number and key[0]}


class MatmulRate:
    """Fastest seconds of each product of some passes, alone; `measure` may be called many times.

    Args:
        core: sizes of the network.
        passes: by name.
        dtype: of the factors.
        device: of the factors.
        clock: gives seconds.
    """

    def __init__(
        self,
        core: CoreConfig,
        passes: dict[str, PassSize],
        dtype: torch.dtype,
        device: torch.device,
        clock: Callable[[], float],
    ) -> None:
        self.dtype, self.device, self.clock = dtype, device, clock
        self.products = {name: products(core, size) for name, size in passes.items()}
        every = {key for found in self.products.values() for key in found}
        self.seconds = dict.fromkeys(sorted(every), float("inf"))

    def measure(self, repeats: int = 3) -> None:
        """Time each product some more times."""
        for rows, inputs, outputs in self.seconds:
            x = torch.randn(rows, inputs, device=self.device, dtype=self.dtype)
            weight = torch.randn(outputs, inputs, device=self.device, dtype=self.dtype)
            key = rows, inputs, outputs
            for _ in range(repeats):
                self.seconds[key] = min(self.seconds[key], self._time(x, weight))

    def rate(self, name: str) -> float:
        """Operations per second of all products of a pass, one after the other."""
        found = self.products[name].items()
        work = sum(2 * rows * inputs * outputs * n for (rows, inputs, outputs), n in found)
        return work / sum(self.seconds[key] * n for key, n in found)

    @property
    def fastest(self) -> float:
        """Operations per second of the fastest product."""
        return max(2 * a * b * c / seconds for (a, b, c), seconds in self.seconds.items())

    def _time(self, x: Tensor, weight: Tensor) -> float:
        # short products are repeated, so that the clock's resolution does not matter
        number = max(1, round(5e8 / (2 * x.numel() * len(weight))))
        F.linear(x, weight)
        synchronize(self.device)
        started = self.clock()
        for _ in range(number):
            F.linear(x, weight)
        synchronize(self.device)
        return (self.clock() - started) / number


def synchronize(device: torch.device) -> None:
    """Wait for what the device has yet to compute."""
    if device.type != "cpu":
        torch.accelerator.synchronize()
