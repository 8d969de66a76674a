"""How weights get from a trainer to an engine: through files that both see, or by a broadcast.

Both sides use this module. What travels are pairs of a name in the checkpoint and a whole tensor,
in parts of a bounded size; a dictionary announces each part to the engine:

    {"path": "/dev/shm/…/0.safetensors"}                          a file
    {"names": […], "dtype_names": […], "shapes": […]}             a broadcast that begins now
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]

SHARED_MEMORY = Path("/dev/shm")
PART_BYTES = 2**29
"""Bytes of a part, but for a single tensor that is larger."""
PATIENCE = timedelta(seconds=60)
"""For the other side of a broadcast."""
Tell: TypeAlias = Callable[[dict[str, Any]], object]
"""Hands a dictionary to the engine, and waits until it is done."""


class FileSender:
    """Sends files in a folder, which only this user can read, and which are deleted afterwards."""

    def __init__(self, folder: str = "") -> None:
        self.folder = folder or (SHARED_MEMORY if SHARED_MEMORY.is_dir() else None)

    def open(self, tell: Tell, engines: int) -> None:
        """Nobody has to be met."""

    def send(self, weights: Iterable[tuple[str, Tensor]], tell: Tell) -> None:
        with tempfile.TemporaryDirectory(prefix="mmrl-weights-", dir=self.folder) as place:
            for n, part in enumerate(split(weights)):
                path = Path(place, f"{n}.safetensors")
                save_file({name: each.cpu().contiguous() for name, each in part.items()}, path)
                tell({"path": str(path)})
                path.unlink()


class GroupSender:
    """Broadcasts from the device of the trainer, which is rank 0 of a further group, to the
    workers of an engine; `host` is the address under which they reach this process."""

    def __init__(self, host: str, device: torch.device) -> None:
        self.host, self.device = host, device
        self.group: Any = None

    def open(self, tell: Tell, engines: int) -> None:
        """Meet the workers of the engine, once before the first part."""
        if self.group is not None:
            return
        size = engines + 1
        store = TCPStore(self.host, 0, is_master=True, wait_for_workers=False, timeout=PATIENCE)
        backend = "nccl" if self.device.type == "cuda" else "gloo"
        meeting = {"host": self.host, "port": store.port, "size": size, "backend": backend}
        with ThreadPoolExecutor(1) as pool:
            announced = pool.submit(tell, meeting)
            self.group = join_group(store, 0, size, backend)
            announced.result()

    def send(self, weights: Iterable[tuple[str, Tensor]], tell: Tell) -> None:
        assert self.group is not None, "open comes first"
        for part in split(weights):
            tensors = [each.to(self.device).contiguous() for each in part.values()]
            info = {
                "names": [*part],
                "dtype_names": [str(each.dtype).removeprefix("torch.") for each in tensors],
                "shapes": [[*each.shape] for each in tensors],
            }
            # beside the call, which ends when the engine has received all
            with ThreadPoolExecutor(1) as pool:
                sent = pool.submit(broadcast, self.group, tensors)
                tell(info)
                sent.result()


Sender: TypeAlias = FileSender | GroupSender
"""The trainer's side."""


class Receiver:
    """An engine's side, of the worker `rank` of its workers, from 0; tensors come on `device`."""

    def __init__(self, device: torch.device, rank: int = 0) -> None:
        self.device, self.rank = device, rank
        self.group: Any = None

    def meet(self, info: Mapping[str, Any]) -> None:
        """Join the group that `GroupSender.open` describes."""
        store = TCPStore(info["host"], info["port"], is_master=False, timeout=PATIENCE)
        self.group = join_group(store, self.rank + 1, info["size"], info["backend"])

    def receive(self, info: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
        """The names and tensors of a part. Raises RuntimeError: a broadcast without a group."""
        if path := info.get("path"):
            yield from load_file(path, device=str(self.device)).items()
            return
        if self.group is None:
            raise RuntimeError("weights are broadcast, and no group was joined before")
        tensors = [
            torch.empty(shape, dtype=getattr(torch, kind), device=self.device)
            for kind, shape in zip(info["dtype_names"], info["shapes"], strict=True)
        ]
        broadcast(self.group, tensors)
        yield from zip(info["names"], tensors, strict=True)


def split(weights: Iterable[tuple[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
    """Weights in parts of at most `PART_BYTES`, or of one tensor."""
    part, size = dict[str, Tensor](), 0
    for name, tensor in weights:
        if part and size + tensor.nbytes > PART_BYTES:
            yield part
            part, size = {}, 0
        part[name], size = tensor, size + tensor.nbytes
    if part:
        yield part


def join_group(store: TCPStore, rank: int, size: int, backend: str) -> Any:
    """A group beside those of the process."""
    import torch.distributed as dist

    if backend == "nccl":
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = PATIENCE
        return dist.ProcessGroupNCCL(store, rank, size, options)
    return dist.ProcessGroupGloo(store, rank, size, PATIENCE)


def broadcast(group: Any, tensors: Sequence[Tensor]) -> None:
    """Give the tensors of rank 0 to all others of a group, in place."""
    for tensor in tensors:
        group.broadcast(tensor, 0).wait()
    if tensors and tensors[0].is_cuda:
        torch.cuda.synchronize(tensors[0].device)


def own_address(host: str) -> str:
    """The address of this machine on the way to another."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # of a datagram socket this sends nothing
        return probe.getsockname()[0]
