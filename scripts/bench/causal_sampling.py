"""Tokens per second of a causal policy in process, against `generate` of transformers.

    python scripts/bench/causal_sampling.py
    python scripts/bench/causal_sampling.py prompt_length=64 length=128

A Qwen3 of random weights continues one prompt for a group: transformers with its own cache and
batch; ours with the prompt read once for the group; and ours with prompts that differ in their
first token, so that each is read. No text ends. A JSON line for each; `ratio` is the seconds of
transformers over those of the line, and `same_tokens` compares greedy tokens with its. The ways
take turns, and the fastest turn of each counts.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from mmrl.config.command import Usage, read_settings


@dataclass(kw_only=True)
class Setting:
    """Sizes; `key=value` on the command line changes them."""

    width: int = 512
    """Hidden width."""
    layers: int = 8
    """Decoder layers."""
    rows: int = 32768
    """Vocabulary rows."""
    prompt_length: int = 512
    """Tokens of the prompt."""
    length: int = 64
    """Tokens of a completion."""
    group: int = 8
    """Completions of the prompt."""
    repeats: int = 3
    """The fastest of so many turns counts."""


if __name__ == "__main__":  # before the seconds that torch takes
    USAGE = Usage("python scripts/bench/causal_sampling.py", __doc__, Setting)
    SETTING = read_settings(USAGE, sys.argv[1:])

import torch  # noqa: E402
from text_sampling import report, take_turns  # noqa: E402
from torch import Tensor  # noqa: E402
from transformers import AutoModelForCausalLM, Qwen3Config  # noqa: E402

from mmrl.generation.causal.canvas import CausalCanvas  # noqa: E402
from mmrl.models import load_model  # noqa: E402
from mmrl.models.policy import Policy  # noqa: E402
from mmrl.randomness import generator  # noqa: E402
from mmrl.samplers import SamplerConfig, sample  # noqa: E402


def build(s: Setting) -> tuple[Any, Policy]:
    """transformers' model and a policy, of the same random weights."""
    heads = s.width // 64
    config = Qwen3Config(
        vocab_size=s.rows,
        hidden_size=s.width,
        intermediate_size=3 * s.width,
        num_hidden_layers=s.layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 2),
        head_dim=64,
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        network = load_model(folder)
    return model, Policy(network, None, {}, network)  # type: ignore[arg-type]


def measure(s: Setting) -> Iterator[dict[str, Any]]:
    """One line per way of sampling; the first is what the others are compared with."""
    model, policy = build(s)
    draw = torch.Generator().manual_seed(1)
    prompt = torch.randint(10, s.rows, (s.prompt_length,), generator=draw)
    shared = prompt.expand(s.group, -1)
    apart = shared.clone()
    apart[:, 0] = torch.arange(s.group)
    config = SamplerConfig(name="autoregressive", temperature=0.0)

    def generate() -> Tensor:
        options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        mask = torch.ones_like(shared)
        found = model.generate(shared, attention_mask=mask, max_new_tokens=s.length, **options)
        return found[:, s.prompt_length :]

    def write(prompts: Tensor) -> Tensor:
        tokens = torch.cat((prompts, prompts.new_zeros(s.group, s.length)), 1)
        response = torch.arange(tokens.shape[1]).expand_as(tokens) >= s.prompt_length
        canvas = CausalCanvas(tokens, response, None, (0, s.rows))
        done = sample(policy, canvas, config, [generator("bench", n) for n in range(s.group)])
        return done.canvas.tokens[:, s.prompt_length :]

    ways = {
        "transformers": generate,
        "shared": lambda: write(shared),
        "apart": lambda: write(apart),
    }
    found = take_turns(ways, s.repeats)
    most, known = found["transformers"]
    for way, (seconds, tokens) in found.items():
        same = (tokens == known).float().mean()
        yield {
            "sampling": way,
            "tokens_per_s": round(s.group * s.length / seconds, 1),
            "ratio": round(most / seconds, 2),
            "same_tokens": round(float(same), 3) if way != "apart" else None,
        }


if __name__ == "__main__":
    for line in measure(SETTING):
        report("causal_sampling", SETTING, line)
