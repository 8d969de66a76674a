"""The one denoising loop behind every sampler.

    logits where this step may write -> guidance -> temperature, top-k, top-p -> rule -> write

The network runs once per step on conditional and unconditional rows together, computes logits only
at the positions the rule asks for and only for the response vocabulary, and computes rows that are
still identical (a group before its first write) once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from mmrl.runtime.activity import activity, advance
from mmrl.samplers.blocks import Block, blocks
from mmrl.samplers.ending import after_end, check_end, fill, valid
from mmrl.samplers.network import BlockNetwork
from mmrl.samplers.noise import row_seeds
from mmrl.samplers.prediction import Prediction
from mmrl.samplers.rules import Rule
from mmrl.samplers.settings import SamplerConfig
from mmrl.samplers.state import Proposal, State
from mmrl.types import Canvas, Rollout

if TYPE_CHECKING:
    from models import Policy


@torch.no_grad()
def denoise(
    policy: Policy,
    canvas: Canvas,
    config: SamplerConfig,
    rule: Rule,
    generator: Generator | Sequence[Generator],
) -> Rollout:
    """Write every masked response position of a canvas; see `mmrl.samplers.sample`."""
    check_end(config.eos, canvas)
    reference = generator if config.rng == "reference" else None
    if reference is not None and not isinstance(reference, Generator):
        raise ValueError("rng: reference draws over the whole batch and takes a single generator")
    seeds = [] if reference else row_seeds(generator, len(canvas))
    canvas = replace(canvas, tokens=canvas.tokens.clone())
    nowhere = torch.full_like(canvas.tokens, -1)
    logprobs = torch.zeros(canvas.tokens.shape, device=canvas.tokens.device)
    named = None if reference else torch.tensor(seeds, device=nowhere.device)
    rollout = Rollout(canvas, nowhere, logprobs, asdict(config), named)
    with activity("denoising step", config.steps):
        for block in blocks(canvas.response, config):
            write_block(policy, rollout, block, config, rule, seeds, reference)
            if config.eos == "stop":
                fill(rollout, block.first + block.steps - 1)
    if config.eos == "leave":
        fill(rollout, config.steps - 1)
    canvas.valid = valid(canvas)
    return rollout


def write_block(
    policy: Policy,
    rollout: Rollout,
    block: Block,
    config: SamplerConfig,
    rule: Rule,
    seeds: list[int],
    reference: Generator | None,
) -> None:
    """Write the masked positions of one block of an unfinished rollout, in place."""
    canvas = rollout.canvas
    opened = canvas.masked & block.positions
    network = BlockNetwork(policy, canvas, block, config)
    propose = rule.propose_reference if reference else rule.propose
    for step in range(block.steps):
        advance()
        masked = canvas.masked & block.positions
        if config.eos == "leave":
            masked &= ~after_end(canvas)
        if not masked.any() and (reference is None or rule.adaptive):
            break
        again = config.cache == "prefix" and network.passes > 0
        state = State(
            step,
            block.steps,
            config.schedule,
            config.choice_temperature,
            block.positions,
            masked,
            seeds,
            reference,
            opened,
            block.first,
            network.columns,
            2 if again else 1,
        )
        where = block.positions if reference else rule.candidates(state)
        if not where.any():
            continue
        prediction = predict(network, canvas, where, config)
        record(rollout, where, propose(state, where, prediction), prediction, block.first + step)
        if config.eos == "fill":
            fill(rollout, block.first + step)
    rollout.forwards += network.passes


def predict(
    network: BlockNetwork, canvas: Canvas, where: Tensor, config: SamplerConfig
) -> Prediction:
    """The prediction at the True entries of `where`; `eos: suppress` takes effect here."""
    first, end = canvas.vocab
    logits = network(canvas, where)
    if config.eos == "suppress":
        logits[:, canvas.stop_ids[0] - first] = -torch.inf
    stops = tuple(token - first for token in canvas.stop_ids if first <= token < end)
    return Prediction(logits, config, canvas.mask_column, stops)


def record(
    rollout: Rollout, where: Tensor, proposal: Proposal, prediction: Prediction, step: int
) -> None:
    """Write what a rule proposed at the True entries of `where`, with its step and log-probs."""
    columns, written = proposal
    chosen = where.clone()
    chosen[where] = written
    rollout.canvas.tokens[chosen] = columns[written] + rollout.canvas.vocab[0]
    rollout.logprobs[chosen] = prediction.chosen(written, columns[written])
    rollout.written_at[chosen] = step
