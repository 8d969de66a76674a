"""Host memory of each process while a checkpoint is loaded, in several ways of sharding.

    python scripts/bench/loading.py width=1024 layers=8
    python scripts/bench/loading.py ways=[fsdp2.yaml] stored=bfloat16 reference=true

A JSON line for each way, with a number for each process: the peak above what the process had before
it loaded, over the size of the weights in the dtype they are loaded in. `private` is memory that
belongs to the process alone (anonymous pages), `uss` adds pages of files that no other process has
mapped, and `resident` all pages of mapped files, which the kernel may drop; `maxrss` is the same by
`getrusage`. `shards` are the bytes a process holds in the end, over the same size.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mmrl.config import check
from mmrl.config.command import Usage, read_settings

ROOT = Path(__file__).resolve().parents[2]
PAGE = os.sysconf("SC_PAGE_SIZE")
INTERVAL_S = 0.002


@dataclass(kw_only=True)
class Setting:
    """Sizes; `key=value` on the command line changes them."""

    width: int = 1024
    """Hidden size, a multiple of 64."""
    layers: int = 8
    """Blocks."""
    vocabulary: int = 16384
    """Rows of embedding and output matrix."""
    stored: Literal["float32", "bfloat16"] = "float32"
    """Dtype of the file."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Dtype that it is loaded in."""
    reference: bool = False
    """Whether a frozen copy is loaded as well."""
    lora: bool = False
    """Whether an adapter is put on every linear layer of the blocks."""
    deferred: bool = True
    """Whether processes that share a model read their parts; false reads all, then shards it."""
    ways: list[str] = field(
        default_factory=lambda: ["multi_gpu.yaml", "fsdp2.yaml", "zero3.yaml", "zero3_offload.yaml"]
    )
    """Files of configs/accelerate."""
    processes: int = 2
    """Processes of each, on the CPU of this machine."""
    checkpoint: str = ""
    """Directory of the checkpoint; empty writes one of random weights."""
    output: str = ""
    """Folder for the results of the processes; set for those that are launched."""

    def __post_init__(self) -> None:
        check(self.width % 64 == 0, "width", self.width, "a multiple of 64")


if __name__ == "__main__":  # before the seconds that torch takes
    USAGE = Usage("python scripts/bench/loading.py", __doc__, Setting)
    SETTING = read_settings(USAGE, sys.argv[1:])

import psutil  # noqa: E402
import torch  # noqa: E402
from launch_form import write_launch_form  # noqa: E402
from setting import circumstances  # noqa: E402

from mmrl.models.families.llada import BACKBONE  # noqa: E402
from mmrl.models.loading import load_model, new_model, save_model  # noqa: E402
from mmrl.pretrained.model_config import LoraConfig, ModelConfig  # noqa: E402
from mmrl.randomness import generator  # noqa: E402


class Peaks:
    """Highest memory of this process since it was made, in bytes."""

    def __init__(self) -> None:
        self.process, self.done = psutil.Process(), threading.Event()
        self.start = self.now()
        self.most = dict(self.start)
        self.maxrss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def now(self) -> dict[str, int]:
        """The present numbers."""
        pages = Path("/proc/self/statm").read_text().split()
        resident, mapped = int(pages[1]) * PAGE, int(pages[2]) * PAGE
        uss = self.process.memory_full_info().uss
        return {"private": resident - mapped, "uss": uss, "resident": resident}

    def watch(self) -> None:
        """Compare with the numbers of every few milliseconds."""
        while not self.done.wait(INTERVAL_S):
            self.most = {key: max(self.most[key], value) for key, value in self.now().items()}

    def grown(self) -> dict[str, int]:
        """How far each has grown."""
        found = {key: self.most[key] - value for key, value in self.start.items()}
        now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {**found, "maxrss": 1024 * (now - self.maxrss)}


@contextmanager
def watch_memory() -> Iterator[Peaks]:
    """Peaks of what happens inside the context."""
    peaks = Peaks()
    thread = threading.Thread(target=peaks.watch)
    thread.start()
    try:
        yield peaks
    finally:
        peaks.done.set()
        thread.join()


def write_checkpoint(s: Setting, directory: Path) -> None:
    """Write a network of random weights, in two files."""
    sizes = {"d_model": s.width, "n_layers": s.layers, "n_heads": s.width // 64}
    rows = {"vocab_size": s.vocabulary, "embedding_size": s.vocabulary, "rope_theta": 500000.0}
    config = {**BACKBONE, "model_type": "llada", **sizes, **rows, "mlp_hidden_size": 3 * s.width}
    save_model(new_model(config, generator("bench", "weights")), directory, s.stored)


def load(s: Setting, checkpoint: Path) -> list[torch.nn.Module]:
    """Load as a run does: the models this process then holds its part of."""
    from mmrl.runtime.launch import join_processes
    from mmrl.runtime.sharding import build_sharding
    from mmrl.training.trainable import freeze_copy, train_parts

    accelerator = join_processes()
    sharding, lora = build_sharding(accelerator), LoraConfig() if s.lora else None
    network = load_model(checkpoint, s.dtype, deferred=s.deferred and sharding.reads_shards)
    model = ModelConfig(path=str(checkpoint), lora=lora, attn_implementation="sdpa")
    frozen = [freeze_copy(network, model, sharding)] if s.reference else []
    train_parts(network, model, 0)
    sharding.shard(network)
    return [network, *frozen]


def count_bytes(model: torch.nn.Module) -> int:
    """Bytes of a model's parameters that this process holds."""
    from mmrl.runtime.sharding.tensors import held_part

    local = [getattr(held_part(p), "_local_tensor", held_part(p)) for p in model.parameters()]
    return sum(tensor.numel() * tensor.element_size() for tensor in local)


def work(s: Setting) -> None:
    """Load the checkpoint on this process, after a small one whose libraries are then imported, and
    write down how its memory grew."""
    output = Path(s.output)
    load(s, output / "small")
    with watch_memory() as peaks:
        models = load(s, Path(s.checkpoint))
    found = {**peaks.grown(), "shards": sum(map(count_bytes, models))}
    (output / f"{os.environ['RANK']}.json").write_text(json.dumps(found))


def measure(s: Setting, way: str) -> dict[str, Any]:
    """The line of one way."""
    with tempfile.TemporaryDirectory() as folder:
        small = Setting(width=64, layers=1, vocabulary=64, stored=s.stored)
        write_checkpoint(small, Path(folder, "small"))
        words = {**vars(s), "output": folder}
        arguments = [f"{key}={value}" for key, value in words.items() if key != "ways"]
        settings = str(write_launch_form(way, s.processes, Path(folder)))
        launcher = ("-m", "accelerate.commands.launch", "--config_file", settings)
        command = [sys.executable, *launcher, __file__, *arguments]
        # DeepSpeed writes to the standard output
        subprocess.run(command, check=True, cwd=ROOT, stdout=sys.stderr)
        found = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("[0-9].json"))]
    network = load_model(s.checkpoint, s.dtype, deferred=True)
    size = sum(p.numel() * p.element_size() for p in network.parameters()) * (1 + s.reference)
    shares = {key: [round(one[key] / size, 3) for one in found] for key in found[0]}
    line = {"bench": "loading", "way": way, "weights_mb": size / 1e6, **shares}
    return {**line, "setting": {**vars(s), "checkpoint": "", "ways": [way]}, **circumstances()}


def main(s: Setting) -> None:
    """Print a line for each way."""
    with tempfile.TemporaryDirectory() as folder:
        if not s.checkpoint:
            s.checkpoint = folder
            write_checkpoint(s, Path(folder))
        for way in s.ways:
            print(json.dumps(measure(s, way)), flush=True)


if __name__ == "__main__":
    work(SETTING) if SETTING.output else main(SETTING)
