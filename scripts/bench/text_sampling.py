"""Tokens per second of text sampling with and without a cache, and how many tokens it changes.

    python scripts/bench/text_sampling.py [steps=128 batch=4 windows=[null,0,32] …]

One JSON line per setting: no cache, then prefix and dual with each look-ahead window. Each setting
is measured in turn within every repeat, and its fastest repeat counts. `same_tokens` is the share
of tokens that equal those of the uncached sampler, `same_first_block` that of the first block. With
random weights tokens are decided by small differences, so this is the worst case of a real model;
`confidence` is the mean probability that the model, uncached, gives to each token when only it is
hidden again, which random draws would bring down to the `chance` printed beside it.
"""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from setting import circumstances  # noqa: E402

from mmrl.config import load_config  # noqa: E402
from mmrl.randomness import generator  # noqa: E402
from mmrl.samplers import SamplerConfig, guided_logits, sample  # noqa: E402
from mmrl.types import Canvas, Rollout  # noqa: E402
from models.checkpoint import new_model  # noqa: E402
from models.llada import BACKBONE, core_config  # noqa: E402


@dataclass(kw_only=True)
class Setting:
    """Sizes; `key=value` on the command line changes them."""

    vocabulary: int = 126_464
    width: int = 512
    layers: int = 8
    heads: int = 8
    mlp: int = 1536
    prompt_length: int = 64
    length: int = 256
    block_size: int = 32
    batch: int = 1
    steps: int = 256
    rule: str = "static"
    temperature: float = 0.0
    windows: list[int | None] = field(default_factory=lambda: [None, 0, 32])
    repeats: int = 2
    probed: int = 32
    """Positions whose confidence is measured, per row."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: str = "cpu"


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
    network = new_model(core_config(config), config, generator("bench", "weights"))
    with torch.no_grad():
        network.head.weight.mul_(10)  # otherwise all predictions are nearly uniform
    network = network.to(s.device, getattr(torch, s.dtype)).eval()
    return SimpleNamespace(model=network, network=network)


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
            if (cache, window) != ("dual", None):  # the same as a window of 0
                yield replace(plain, cache=cache, window=window)


def timed(s: Setting, network: Any, canvas: Canvas, sampler: SamplerConfig) -> tuple[float, Any]:
    """Seconds of one rollout of the whole batch, and the rollout."""
    draws = [generator("bench", "text", row) for row in range(s.batch)]
    synchronise(s)
    started = time.perf_counter()
    done = sample(network, canvas, sampler, draws)
    synchronise(s)
    return time.perf_counter() - started, done


def synchronise(s: Setting) -> None:
    if torch.device(s.device).type != "cpu":
        torch.accelerator.synchronize()


@torch.no_grad()
def confidence(s: Setting, network: Any, done: Rollout) -> float:
    """Mean probability of a token given all others, at `probed` positions of each row."""
    places = torch.linspace(0, s.length - 1, s.probed).long().unique() + s.prompt_length
    found = []
    for place in places.tolist():
        canvas = replace(done.canvas, tokens=done.canvas.tokens.clone())
        canvas.tokens[:, place] = canvas.mask_id
        probs = guided_logits(network, canvas, canvas.masked, 0.0).float().softmax(-1)
        found.append(probs.gather(-1, done.canvas.tokens[:, place, None]))
    return torch.cat(found).mean().item()


def measure(s: Setting) -> Iterator[dict[str, Any]]:
    """One line per sampler; the first, uncached, is what the others are compared with."""
    network, canvas = policy(s), prompts(s)
    settings = list(samplers(s))
    for sampler in settings:  # warm up: one step a block
        timed(s, network, canvas, replace(sampler, steps=s.length // s.block_size))
    runs = [[timed(s, network, canvas, one) for one in settings] for _ in range(s.repeats)]
    seconds = [min(run[n][0] for run in runs) for n in range(len(settings))]
    done = [rollout for _, rollout in runs[0]]
    for n, sampler in enumerate(settings):
        same = (done[n].canvas.tokens == done[0].canvas.tokens)[:, s.prompt_length :].float()
        yield {
            "cache": sampler.cache,
            "window": sampler.window,
            "tokens_per_s": round(s.batch * s.length / seconds[n], 2),
            "ratio": round(seconds[0] / seconds[n], 2),
            "forwards": done[n].forwards,
            "same_tokens": round(same.mean().item(), 4),
            "same_first_block": round(same[:, : s.block_size].mean().item(), 4),
            "confidence": round(confidence(s, network, done[n]), 5),
            "chance": round(1 / s.vocabulary, 8),
        }


if __name__ == "__main__":
    setting = load_config(Setting, sys.argv[1:])
    around = {"bench": "text_sampling", **circumstances(), "config": asdict(setting)}
    for line in measure(setting):
        print(json.dumps({**around, **line}), flush=True)
