"""Seconds of a rollout step and of an update of SD3, against the transformer's own passes.

    python scripts/bench/flow.py
    python scripts/bench/flow.py layers=1 image_size=128 rows=1

A skeleton of SD3.5-medium's width draws a group with guidance, both branches in one batch, by
stochastic steps; then the steps are replayed with gradient, their blocks computed again in the
backward pass. `alone` calls diffusers' transformer as often on the same inputs, and does nothing
else. A JSON line for each; `ratio` is the seconds of the line over those of `alone`. Both take
turns, and the fastest turn of each counts.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

from mmrl.config.command import Usage, read_settings  # noqa: E402


@dataclass(kw_only=True)
class Setting:
    """Sizes; `key=value` on the command line changes them."""

    width: int = 1536
    """Of the transformer, a multiple of 64."""
    layers: int = 2
    """Its blocks."""
    image_size: int = 256
    """Pixels along a side; 16 of them are a token."""
    rows: int = 4
    """Images of the group."""
    steps: int = 4
    """Denoising steps; all but the last are replayed."""
    repeats: int = 3
    """The fastest of so many turns counts."""


if __name__ == "__main__":  # before the seconds that torch takes
    SETTING = read_settings(Usage("python scripts/bench/flow.py", __doc__, Setting), sys.argv[1:])

import torch  # noqa: E402
from text_sampling import report, take_turns  # noqa: E402

from mmrl.algorithms import AlgorithmConfig  # noqa: E402
from mmrl.estimators import draw_passes, score  # noqa: E402
from mmrl.models import load_policy  # noqa: E402
from mmrl.randomness import generator  # noqa: E402
from mmrl.samplers import SamplerConfig, sample  # noqa: E402
from mmrl.types import Prompt, Rollout  # noqa: E402
from scripts.pipeline_skeletons import write_sd3  # noqa: E402


def build(s: Setting) -> Any:
    """A policy of random weights."""
    with TemporaryDirectory() as folder:
        write_sd3(Path(folder), s.width, s.layers)
        policy = load_policy(folder, image_size=s.image_size, max_prompt_length=16)
        policy.layouts["text_to_image"].encode("")  # while its encoders are there
        policy.layouts["text_to_image"].encode("a red cube")
    return policy


def measure(s: Setting) -> Iterator[dict[str, Any]]:
    """Lines of the rollout and of the update."""
    policy = build(s)
    prompts = [Prompt("0", "text_to_image", "a red cube")] * s.rows
    config = SamplerConfig(name="flow", steps=s.steps, cfg_scale=3.5)

    def roll_out() -> Rollout:
        draws = [generator("bench", n) for n in range(s.rows)]
        return sample(policy, policy.canvas(prompts), config, draws)

    rollout = roll_out()
    method = AlgorithmConfig(strategy="replay")
    passes = draw_passes(rollout, method, [generator("bench", n) for n in range(s.rows)])
    transformer = policy.network.transformer
    inputs = list_inputs(rollout, s.image_size // 8)

    def step_alone() -> None:
        with torch.no_grad():
            for _ in range(s.steps):
                transformer(**{key: torch.cat((x, x)) for key, x in inputs.items()})

    def update() -> None:
        policy.network.gradient_checkpointing = True
        for k in range(len(passes)):
            one = passes.select_draws(slice(k, k + 1))
            score(policy, rollout.canvas, one).logprobs.sum().backward()
        policy.network.zero_grad()

    def update_alone() -> None:
        transformer.enable_gradient_checkpointing()
        transformer.train()
        for _ in range(len(passes)):
            transformer(**inputs).sample.mean().backward()
        transformer.eval()
        transformer.disable_gradient_checkpointing()
        transformer.zero_grad()

    for name, alone, ours in (("rollout", step_alone, roll_out), ("update", update_alone, update)):
        found = take_turns({"alone": alone, "mmrl": ours}, s.repeats)
        for way, (seconds, _) in found.items():
            ratio = round(seconds / found["alone"][0], 3)
            yield {"measured": name, "way": way, "seconds": round(seconds, 3), "ratio": ratio}


def list_inputs(rollout: Rollout, side: int) -> dict[str, Any]:
    """What the transformer reads in the first step, without guidance."""
    canvas = rollout.canvas
    texts, rows = canvas.condition(), len(canvas)
    return {
        "hidden_states": canvas.path[:, 0].unflatten(1, (-1, side, side)),
        "timestep": torch.full((rows,), 1000.0),
        "encoder_hidden_states": texts["states"],
        "pooled_projections": texts["pooled"],
    }


if __name__ == "__main__":
    for line in measure(SETTING):
        report("flow", SETTING, line)
