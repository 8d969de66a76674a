"""Tokens per second of text sampling with and without a cache, and how many tokens it changes.

    python scripts/bench/text_sampling.py repeats=2
    python scripts/bench/text_sampling.py steps=256 batch=1 windows=[null,32]

One JSON line per setting: no cache, then prefix and dual with each look-ahead window. `same_tokens`
is the share of tokens that equal those of the uncached sampler, `same_first_block` that of the
first block. With random weights small differences decide tokens, and one that differs changes those
after it, so this is harsher than a trained model. The settings are measured in turn within every
repeat; the fastest counts, on the clock and in seconds of the processors.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mmrl.config.command import Usage, read_settings  # noqa: E402


@dataclass(kw_only=True)
class Setting:
    """Sizes; `key=value` on the command line changes them."""

    vocabulary: int = 126_464
    """Rows of the embedding."""
    width: int = 512
    """Width of the network."""
    layers: int = 8
    """Its layers."""
    heads: int = 8
    """Its heads of attention."""
    mlp: int = 1536
    """Width of its MLPs."""
    prompt_length: int = 64
    """Tokens of a prompt."""
    length: int = 256
    """Response positions."""
    block_size: int = 32
    """Positions of a block."""
    batch: int = 4
    """Rows sampled at once."""
    steps: int = 128
    """Denoising steps."""
    rule: str = "static"
    """Commit rule."""
    temperature: float = 0.0
    """Divides the logits."""
    windows: list[int | None] = field(default_factory=lambda: [None, 32])
    """Look-ahead windows of the caches; null is all, or none."""
    repeats: int = 2
    """The fastest of so many counts."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the weights."""
    device: str = "cpu"
    """Where the network runs."""


if __name__ == "__main__":  # before the seconds that torch takes
    SETTING = read_settings(
        Usage("python scripts/bench/text_sampling.py", __doc__, Setting), sys.argv[1:]
    )

import torch  # noqa: E402
from results import circumstances, report  # noqa: E402

from mmrl.models.families.llada import BACKBONE  # noqa: E402
from mmrl.models.loading import new_model  # noqa: E402
from mmrl.randomness import generator  # noqa: E402
from mmrl.samplers import SamplerConfig, sample  # noqa: E402
from mmrl.types import Canvas, Rollout  # noqa: E402


def policy(s: Setting) -> Any:
    """A network of random weights in the place of a policy."""
    config = {
        **BACKBONE,
        "model_type": "llada",
        "d_model": s.width,
        "n_layers": s.layers,
        "n_heads": s.heads,
        "mlp_hidden_size": s.mlp,
        "vocab_size": s.vocabulary,
        "rope_theta": 500000.0,
    }
    network = new_model(config, generator("bench", "weights"))
    with torch.no_grad():
        network.head.weight.mul_(10)  # otherwise all predictions are nearly uniform
    network = network.to(s.device, getattr(torch, s.dtype)).eval()
    return SimpleNamespace(model=network, network=network, shares_forwards=False)


def prompts(s: Setting) -> Canvas:
    """Random prompts with masks behind them."""
    mask_id, draw = s.vocabulary - 1, generator("bench", "prompt")
    given = torch.randint(0, mask_id, (s.batch, s.prompt_length), generator=draw)
    tokens = torch.cat((given, torch.full((s.batch, s.length), mask_id)), 1)
    response = torch.arange(tokens.shape[1]).expand_as(tokens) >= s.prompt_length
    return Canvas(tokens, response, None, (0, s.vocabulary), mask_id).to(s.device)


def samplers(s: Setting) -> Iterator[SamplerConfig]:
    """No cache, then both caches with each window."""
    plain = SamplerConfig(
        name=s.rule, steps=s.steps, block_size=s.block_size, temperature=s.temperature
    )
    yield plain
    for cache in ("prefix", "dual"):
        for window in s.windows:
            yield replace(plain, cache=cache, window=window)


class Timed(NamedTuple):
    """Seconds on the clock and of the processors for one rollout of the whole batch."""

    clock: float
    cpu: float
    rollout: Rollout


def timed(s: Setting, network: Any, canvas: Canvas, sampler: SamplerConfig) -> Timed:
    draws = [generator("bench", "text", row) for row in range(s.batch)]
    synchronise(s)
    started = time.perf_counter(), time.process_time()
    done = sample(network, canvas, sampler, draws)
    synchronise(s)
    return Timed(time.perf_counter() - started[0], time.process_time() - started[1], done)


def synchronise(s: Setting) -> None:
    if torch.device(s.device).type != "cpu":
        torch.accelerator.synchronize()


def measure(s: Setting) -> Iterator[dict[str, Any]]:
    """One line per sampler; the first, uncached, is what the others are compared with."""
    network, canvas = policy(s), prompts(s)
    settings = list(samplers(s))
    timed(s, network, canvas, replace(settings[0], steps=s.length // s.block_size))
    repeats = [[timed(s, network, canvas, one) for one in settings] for _ in range(s.repeats)]
    runs = list(zip(*repeats, strict=True))
    clock, cpu = ([min(one[k] for one in run) for run in runs] for k in (0, 1))
    plain = runs[0][0].rollout.canvas.tokens
    for n, sampler in enumerate(settings):
        done = runs[n][0].rollout
        same = (done.canvas.tokens == plain)[:, s.prompt_length :].float()
        yield {
            "cache": sampler.cache,
            "window": sampler.window,
            "tokens_per_s": round(s.batch * s.length / clock[n], 2),
            "tokens_per_cpu_s": round(s.batch * s.length / cpu[n], 2),
            "ratio": round(clock[0] / clock[n], 2),
            # on a machine that does other work as well, this one is the fairer of the two
            "cpu_ratio": round(cpu[0] / cpu[n], 2),
            "forwards": done.forwards,
            "same_tokens": round(same.mean().item(), 4),
            "same_first_block": round(same[:, : s.block_size].mean().item(), 4),
        }


if __name__ == "__main__":
    around = {"bench": "text_sampling", **circumstances(), "config": asdict(SETTING)}
    for line in measure(SETTING):
        report({**around, **line})
