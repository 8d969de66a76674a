"""Where the network of a reward runs, in which precision, and on how many images at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar
from weakref import WeakKeyDictionary

from mmrl.config import Settings, at_least

if TYPE_CHECKING:
    import torch
    from torch import Tensor

T = TypeVar("T")
FROZEN: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""The networks of rewards of this process, and the devices that their options name."""


@dataclass(kw_only=True, eq=False)
class NetworkOptions(Settings):
    """Options that all rewards with a network have.

    Rewards of this kind raise FileNotFoundError, ValueError: a checkpoint that does not exist,
    cannot be read, is not complete or of another kind; NotHereError where one is to come from the
    hub."""

    where: ClassVar[str] = "network"

    device: str = "auto"
    """A torch device; `auto` takes the current CUDA device if there is one."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Autocast precision of the network; normalisation and scores are always float32."""
    batch_size: Annotated[int, at_least(1)] = 32
    """Images in one forward pass."""
    fill: Annotated[int, at_least(1)] = 8
    """Batches are filled up to multiples of this, with copies of the last row. Matrix products
    choose their kernels by the number of rows, so the last bits of a score depend on what else is
    scored; a multiple makes that rarer, and `batch_size` gives every batch one shape."""

    @cached_property
    def place(self) -> torch.device:
        """The device that `device` names."""
        return resolve_device(self.device)

    def freeze(self, network: Any) -> Any:
        """See `freeze`."""
        return freeze(network, self.device)

    def split(self, items: Sequence[T]) -> Iterator[Sequence[T]]:
        """The batches of some items."""
        for start in range(0, len(items), self.batch_size):
            yield items[start : start + self.batch_size]

    def fill_up(self, rows: Tensor) -> Tensor:
        """Rows [n, …] on the device, the last one repeated until n is a multiple of `fill`."""
        import torch

        missing = -len(rows) % self.fill
        filled = torch.cat((rows, rows[-1:].expand(missing, *rows.shape[1:])))
        return filled.to(self.place)

    def autocast(self) -> torch.autocast:
        """The context of a forward pass."""
        import torch

        dtype = getattr(torch, self.dtype)
        return torch.autocast(self.place.type, dtype, enabled=dtype != torch.float32)


def freeze(network: Any, device: str) -> Any:
    """Move a network to a device by its name, frozen and in evaluation mode; see `FROZEN`."""
    FROZEN[network] = device
    return network.to(resolve_device(device)).eval().requires_grad_(False)


def move_networks(away: bool) -> None:
    """Move the networks of rewards to the memory of the host, or back to their devices."""
    for network, device in [*FROZEN.items()]:
        network.to("cpu" if away else resolve_device(device))


def count_bytes(networks: Iterable[Any]) -> int:
    """Bytes of the weights of some of `FROZEN`, without those whose options name the CPU."""
    placed = (p for each in networks if FROZEN[each] != "cpu" for p in each.parameters())
    return sum(p.numel() * p.element_size() for p in placed)


def resolve_device(device: str) -> torch.device:
    """A torch device by its name; for "auto" the current CUDA device if there is one."""
    import torch

    if device != "auto":
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
