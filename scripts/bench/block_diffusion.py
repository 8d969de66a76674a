"""What a block-causal network saves: an exact cache in rollouts, one packed pass in updates.

    python scripts/bench/block_diffusion.py repeats=2
    python scripts/bench/block_diffusion.py width=1024 layers=8 device=cuda dtype=bfloat16

Two JSON lines, for a group on one prompt. `rollout`: seconds without a cache, where every step
computes whole rows, over seconds with the exact cache, which computes the prompt once for the group
and every finished block once; `same_tokens` is the share of tokens that are equal. `update`:
forward and backward passes of one mask draw block by block, each behind its clean prefix, over one
packed row of prompt, clean completion and hidden copy; `difference` is that of the gradients,
relative to their norm. Both sides are measured in turn; the fastest of the repeats counts.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mmrl.config.command import Usage, read_settings  # noqa: E402


@dataclass(kw_only=True)
class Setting:
    """Sizes; `key=value` on the command line changes them."""

    vocabulary: int = 8192
    """Rows of the embedding."""
    width: int = 256
    """Width of the network."""
    layers: int = 4
    """Its layers."""
    heads: int = 4
    """Its heads of attention."""
    mlp: int = 768
    """Width of its MLPs."""
    group: int = 8
    """Completions of the prompt."""
    prompt_length: int = 512
    """Tokens of the prompt."""
    length: int = 256
    """Response positions."""
    block_size: int = 4
    """Positions of a block."""
    steps: int = 256
    """Denoising steps."""
    update_rows: int = 2
    """Completions of a micro-batch."""
    repeats: int = 1
    """The fastest of so many counts."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the weights."""
    device: str = "cpu"
    """Where the network runs."""


if __name__ == "__main__":  # before the seconds that torch takes
    SETTING = read_settings(
        Usage("python scripts/bench/block_diffusion.py", __doc__, Setting), sys.argv[1:]
    )

import torch  # noqa: E402
from results import circumstances, report  # noqa: E402
from torch import Tensor  # noqa: E402

from mmrl.estimators.scoring import score  # noqa: E402
from mmrl.models.layouts.text_layout import align_blocks  # noqa: E402
from mmrl.models.loading import new_model  # noqa: E402
from mmrl.randomness import generator  # noqa: E402
from mmrl.samplers import SamplerConfig, sample  # noqa: E402
from mmrl.types import Canvas, Passes, Rollout  # noqa: E402


def policy(s: Setting) -> Any:
    """A network of random weights in the place of a policy."""
    config = {
        "model_type": "sdar",
        "hidden_size": s.width,
        "num_hidden_layers": s.layers,
        "num_attention_heads": s.heads,
        "num_key_value_heads": s.heads,
        "head_dim": s.width // s.heads,
        "intermediate_size": s.mlp,
        "vocab_size": s.vocabulary,
        "block_size": s.block_size,
    }
    network = new_model(config, generator("bench", "weights"))
    with torch.no_grad():
        network.head.weight.mul_(10)  # otherwise all predictions are nearly uniform
    network = network.to(s.device, getattr(torch, s.dtype)).eval()
    return SimpleNamespace(model=network, network=network, shares_forwards=False)


def group_canvas(s: Setting) -> Canvas:
    """The prompt with masks behind it, once for each completion."""
    mask_id, draw = s.vocabulary - 1, generator("bench", "prompt")
    given = torch.randint(0, mask_id, (1, s.prompt_length), generator=draw).expand(s.group, -1)
    tokens = torch.cat((given, torch.full((s.group, s.length), mask_id)), 1)
    response = torch.arange(tokens.shape[1]).expand_as(tokens) >= s.prompt_length
    blocks = align_blocks(torch.ones_like(response), s.block_size, s.prompt_length)
    size = s.block_size
    canvas = Canvas(
        tokens, response, None, (0, s.vocabulary), mask_id, blocks=blocks, block_size=size
    )
    return canvas.to(s.device)


def measure(actions: dict[str, Callable[[], Any]], repeats: int) -> tuple[dict[str, float], Any]:
    """The fewest seconds of each action, measured in turn, and what each gave last."""
    seconds, results = dict.fromkeys(actions, float("inf")), {}
    for _ in range(repeats):
        for name, action in actions.items():
            began = time.perf_counter()
            results[name] = action()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            seconds[name] = min(seconds[name], time.perf_counter() - began)
    return seconds, results


def roll_out(s: Setting, subject: Any, canvas: Canvas, cache: str) -> Rollout:
    """The completions, with or without the exact cache."""
    settings = SamplerConfig(name="static", steps=s.steps, cache=cache)  # type: ignore[arg-type]
    return sample(subject, canvas, settings, generator("bench", "sample"))


def gradient_of(network: torch.nn.Module, loss: Callable[[], None]) -> Tensor:
    """The gradient of all weights after `loss`, which goes backward."""
    network.zero_grad()
    loss()
    return torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])


def packed_loss(subject: Any, canvas: Canvas, hidden: Tensor) -> None:
    """Backward pass of the log-probs of the hidden tokens, all blocks in one row."""
    passes = Passes(hidden[None], hidden[None], hidden[None].float())
    score(subject, canvas, passes).logprobs.sum().backward()


def blockwise_loss(subject: Any, canvas: Canvas, hidden: Tensor) -> None:
    """The same block by block, each with the clean tokens before it."""
    blocks = canvas.response_blocks
    assert blocks is not None and canvas.blocks is not None
    for block in range(int(blocks.max()) + 1):
        inside = hidden & (blocks == block)
        if not bool(inside.any()):
            continue
        stop = int((blocks == block).any(0).nonzero().max()) + 1
        tokens = canvas.hide(inside).tokens[:, :stop]
        own = canvas.blocks[:, :stop]
        logits = subject.model(input_ids=tokens, positions=inside[:, :stop], blocks=own).logits
        logits[:, canvas.never] = -torch.inf
        targets = canvas.tokens[inside]
        logits.float().log_softmax(-1).gather(-1, targets[:, None]).sum().backward()


def main(s: Setting) -> None:
    """Measure rollouts, then updates."""
    subject, canvas = policy(s), group_canvas(s)
    caches = {
        "none": lambda: roll_out(s, subject, canvas, "none"),
        "exact": lambda: roll_out(s, subject, canvas, "prefix"),
    }
    seconds, rollouts = measure(caches, s.repeats)
    first, second = (rollouts[name].canvas.tokens[canvas.response] for name in caches)
    same = float((first == second).float().mean())
    show(s, "rollout", seconds, {"same_tokens": same})
    done = rollouts["exact"].canvas[: s.update_rows]
    draw = torch.rand(done.tokens.shape, generator=generator("bench", "mask"))
    hidden = (draw < 0.5).to(s.device) & done.response
    updates = {
        "blockwise": lambda: gradient_of(
            subject.model, lambda: blockwise_loss(subject, done, hidden)
        ),
        "packed": lambda: gradient_of(subject.model, lambda: packed_loss(subject, done, hidden)),
    }
    seconds, gradients = measure(updates, s.repeats)
    first, second = (gradients[name].double() for name in updates)
    show(s, "update", seconds, {"difference": float((first - second).norm() / first.norm())})


def show(s: Setting, what: str, seconds: dict[str, float], quality: dict[str, float]) -> None:
    """Print one line: seconds of both sides and their ratio."""
    slow, fast = seconds.values()
    measured = {f"seconds_{name}": round(value, 3) for name, value in seconds.items()}
    line = {"what": what, **measured, "ratio": round(slow / fast, 2), **quality}
    report({"bench": "block_diffusion", **line, **asdict(s), **circumstances()})


if __name__ == "__main__":
    main(SETTING)
