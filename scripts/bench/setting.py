"""What both benchmarks share: network, canvas, and two ways measured in processes of their own.

The network has the vocabulary of MMaDA and random weights. A row is laid out as MMaDA's image
prompts: padding up to `text_length`, the prompt, then the frame of the image. "Ours" goes through
`mmrl`; "straightforward" is what the public code does: logits of every position over the whole
vocabulary, on rows that keep their padding.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Literal, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from results import circumstances, report  # noqa: E402

from mmrl.config import load_config  # noqa: E402
from mmrl.randomness import generator  # noqa: E402
from mmrl.types import Canvas  # noqa: E402

CODEBOOK, UNUSED_ROWS = 8192, 115
MEASURES = ("tokens_per_s", "tokens_per_cpu_s", "peak_mb")
T = TypeVar("T")
Measured = tuple[float, float, Any]
"""Seconds on the clock and of the processors, and what the two ways must agree on."""


@dataclass(kw_only=True)
class Setting:
    """Sizes; `key=value` on the command line changes them."""

    vocabulary: int = 134_656
    """Rows of the embedding."""
    width: int = 512
    """Width of the network."""
    layers: int = 8
    """Its layers."""
    heads: int = 8
    """Its heads of attention."""
    mlp: int = 1536
    """Width of its MLPs."""
    grid: int = 16
    """Image tokens on a side."""
    text_length: int = 257
    """Tokens before the image."""
    prompt_length: int = 23
    """Those that are no padding."""
    batch: int = 4
    """Rows of the group."""
    steps: int = 12
    """Denoising steps."""
    cfg_scale: float = 3.5
    """Guidance."""
    mask_rate: float = 0.8
    """Share of image tokens that an update hides."""
    mask_policy: Literal["key_padding", "ignore"] = "key_padding"
    """What padding means."""
    repeats: int = 1
    """The fastest of so many counts."""
    way: Literal["both", "ours", "straightforward"] = "both"
    """Which is measured; each in a process of its own with both."""
    checkpoint: str = ""
    """The network; empty writes one of random weights."""

    @property
    def tokens(self) -> int:
        """Image tokens of the group."""
        return self.batch * self.grid**2


def write_checkpoint(s: Setting, directory: Path) -> None:
    """Write a network of random weights."""
    from mmrl.models.families.llada import BACKBONE
    from mmrl.models.loading import new_model, save_model

    config = {
        **BACKBONE,
        "model_type": "mmada",
        "d_model": s.width,
        "n_layers": s.layers,
        "n_heads": s.heads,
        "mlp_hidden_size": s.mlp,
        "vocab_size": s.vocabulary,
        "rope_theta": 500000.0,
    }
    save_model(new_model(config, generator("bench", "weights")), directory)


def policy(s: Setting) -> Any:
    """The network in the place of a policy."""
    from mmrl.models.loading import load_model

    network = load_model(s.checkpoint)
    return SimpleNamespace(model=network, network=network, shares_forwards=False)


def group(s: Setting, way: str) -> Canvas:
    """One group of one prompt, nothing written; ours cuts what is padding in every row."""
    import torch

    pad, mask_id = 0, s.vocabulary - 1
    first = s.vocabulary - UNUSED_ROWS - CODEBOOK
    prompt = torch.randint(1, 1000, (s.prompt_length,), generator=generator("bench", "prompt"))
    image = torch.tensor([1, *[mask_id] * s.grid**2, 2])
    padding = torch.full((s.text_length - s.prompt_length,), pad)
    tokens = torch.cat((padding, prompt, image)).expand(s.batch, -1)
    twin = torch.cat((padding, torch.full((s.prompt_length - 3,), pad), prompt[-3:], image))
    canvas = Canvas(
        tokens,
        tokens == mask_id,
        tokens != pad,
        (first, first + CODEBOOK),
        mask_id,
        twin.expand(s.batch, -1),
        (twin != pad).expand(s.batch, -1),
        (s.grid, s.grid),
    )
    if s.mask_policy == "ignore":
        canvas.attend = canvas.uncond_attend = None
    elif way == "ours":
        for name in ("tokens", "response", "attend", "uncond_tokens", "uncond_attend"):
            setattr(canvas, name, getattr(canvas, name)[:, len(padding) :])
    return canvas


def fastest(run: Callable[[], T], repeats: int) -> tuple[float, float, T]:
    """Least seconds on the clock and of the processors, and the result, of repeated runs."""
    clock, cpu = [], []
    for _ in range(repeats):
        started = time.perf_counter(), time.process_time()
        result = run()
        clock.append(time.perf_counter() - started[0])
        cpu.append(time.process_time() - started[1])
    return min(clock), min(cpu), result


def compare(
    name: str, ways: dict[str, Callable[[Setting], Measured]], quality: Callable[[Any, Any], Any]
) -> None:
    """Measure each way in a process of its own and print one JSON line.

    Args:
        name: of the benchmark.
        ways: `ours` and `straightforward`.
        quality: what the results of the two say about each other.
    """
    s = load_config(Setting, sys.argv[1:])
    if s.way != "both":
        seconds, cpu_seconds, result = ways[s.way](s)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        speeds = {"tokens_per_s": s.tokens / seconds, "tokens_per_cpu_s": s.tokens / cpu_seconds}
        print(json.dumps({**speeds, "peak_mb": peak, "result": result}))
        return
    found: dict[str, Any] = {}
    with TemporaryDirectory() as directory:
        write_checkpoint(s, Path(directory))
        for way in ways:
            command = [sys.executable, *sys.argv, f"way={way}", f"checkpoint={directory}"]
            out = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
            found[way] = json.loads(out)
    ours, other = found["ours"], found["straightforward"]
    line = {
        "bench": name,
        **circumstances(),
        "config": asdict(s),
        **{key: {way: round(found[way][key], 2) for way in found} for key in MEASURES},
        "ratio": round(ours["tokens_per_s"] / other["tokens_per_s"], 2),
        # on a machine that does other work as well, this one is the fairer of the two
        "cpu_ratio": round(ours["tokens_per_cpu_s"] / other["tokens_per_cpu_s"], 2),
        "peak_share": round(ours["peak_mb"] / other["peak_mb"], 3),
    }
    report({**line, **quality(ours["result"], other["result"])})
