"""Scoring of networks whose attention is causal between blocks: all blocks in one forward pass."""

from itertools import product
from types import SimpleNamespace

import pytest
import torch
from torch import Generator, Tensor

from mmrl.algorithms import load_algorithm
from mmrl.algorithms.algorithm_config import ValueConfig
from mmrl.algorithms.value import compute_advantages
from mmrl.estimators import draw_passes, score
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.models import load_model
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Rollout
from tests.mmrl.block_canvases import SIZE, block_canvas
from tests.models.networks import FIXTURES, bare_policy

TRACE = {"name": "trace_rl", "slice_size": 1}


@pytest.fixture(scope="module")
def policy() -> SimpleNamespace:
    return bare_policy(load_model(FIXTURES / "sdar", dtype="float64"))


def roll_out(policy: SimpleNamespace, alignment: str, **options: object) -> Rollout:
    canvas = block_canvas(alignment)
    settings = {"name": "static", "steps": 12, "cache": "prefix", **options}
    generators = [Generator().manual_seed(n) for n in range(len(canvas))]
    return sample(policy, canvas, SamplerConfig(**settings), generators)  # type: ignore[arg-type]


def generators(rollout: Rollout) -> list[Generator]:
    return [Generator().manual_seed(10 + n) for n in range(len(rollout))]


def score_by_block(policy: SimpleNamespace, canvas: MaskedCanvas, hidden: Tensor) -> Tensor:
    """[B, L] log-probs of the hidden tokens, a forward pass for each block of each row."""
    found = torch.zeros(hidden.shape, dtype=torch.float64)
    blocks = canvas.split()
    assert blocks is not None
    for row, block in product(range(len(canvas)), range(int(blocks.max()) + 1)):
        inside = blocks[row] == block
        if not bool(inside.any()):
            continue
        stop = int(inside.nonzero().max()) + 1
        first = int(canvas.attend[row].int().argmax()) if canvas.attend is not None else 0
        masked = canvas.tokens[row].where(~(hidden[row] & inside), canvas.mask_id)
        own = canvas.blocks[row : row + 1, first:stop]  # type: ignore[index]
        logits = policy.model(input_ids=masked[None, first:stop], blocks=own).logits[0]
        logits = logits[:, slice(*canvas.columns)].log_softmax(-1)
        asked = hidden[row, first:stop] & inside[first:stop]
        targets = canvas.tokens[row, first:stop][asked]
        found[row, first:stop][asked] = logits[asked].gather(-1, targets[:, None])[:, 0]
    return found


@pytest.mark.parametrize("alignment", ["left", "right"])
@pytest.mark.parametrize("preset", ["random_masking", "coupled_grpo", "mask_grpo_text", "espo"])
@torch.no_grad()
def test_one_packed_pass_scores_as_a_pass_for_each_block(
    policy: SimpleNamespace, alignment: str, preset: str
) -> None:
    rollout = roll_out(policy, alignment)
    passes = draw_passes(rollout, load_algorithm({"name": preset}), generators(rollout))
    packed = score(policy, rollout.canvas, passes).logprobs
    for k in range(len(passes)):
        alone = score_by_block(policy, rollout.canvas, passes.query.mask[k]) * passes.scored[k]
        torch.testing.assert_close(packed[k].double(), alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("cfg_scale", [0.0, 1.5])
@pytest.mark.parametrize("alignment", ["left", "right"])
@torch.no_grad()
def test_the_trace_of_all_blocks_gives_the_log_probs_of_the_sampler_in_passes_of_a_block(
    policy: SimpleNamespace, alignment: str, cfg_scale: float
) -> None:
    rollout = roll_out(policy, alignment, cfg_scale=cfg_scale)
    passes = draw_passes(rollout, load_algorithm(TRACE), generators(rollout))
    assert len(passes) == SIZE
    assert torch.equal(passes.scored.sum(0), rollout.canvas.counted.long())
    replayed = score(policy, rollout.canvas, passes, cfg_scale).logprobs.sum(0)
    torch.testing.assert_close(replayed, rollout.logprobs, atol=1e-5, rtol=0)


@torch.no_grad()
def test_slices_shrink_inside_each_block() -> None:
    """The example of TraceRL's training: two recorded steps, and one of the last block, a round."""
    steps = torch.tensor([[1, 2, 2, 3, 4, 4, 5, 5, 6, 6]])
    blocks = torch.arange(10)[None] // 4
    response = torch.ones_like(steps, dtype=torch.bool)
    canvas = MaskedCanvas(steps, response, None, (0, 9), 9, blocks=blocks, block_size=4)
    rollout = Rollout(canvas, steps, torch.zeros(1, 10), {})
    passes = draw_passes(rollout, load_algorithm(TRACE), [Generator()])
    rows = ["1000110011", "0110001100", "0001000000"]
    assert ["".join(map(str, row.int().tolist())) for row in passes.scored[:, 0]] == rows
    hidden = ["1111111111", "0111001100", "0001000000"]
    assert ["".join(map(str, row.int().tolist())) for row in passes.query.mask[:, 0]] == hidden


def test_values_are_carried_back_step_by_step_whatever_the_passes() -> None:
    """Passes that score a slice of every block give the returns of one pass a step."""
    draw = Generator().manual_seed(0)
    steps = torch.tensor([[0, 1, 1, 0, 2, 3, 3, 2], [0, 0, 1, 1, 2, 3, 4, 4]])
    order = torch.arange(5)[:, None, None]
    by_step = steps == order
    values = torch.rand(2, 8, generator=draw)
    rewards = torch.zeros(2, 8)
    rewards[:, -1] = torch.tensor([1.0, -0.5])
    rewards[0, 3] = 0.3
    settings = ValueConfig(gamma=0.9, lam=0.8)
    right = compute_advantages(values * by_step, rewards, by_step, settings)
    rounds = torch.stack((by_step[0] | by_step[2], by_step[1] | by_step[3] | by_step[4]))
    found = compute_advantages(values * rounds, rewards, rounds, settings, steps)
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one.sum(0), other.sum(0))
        assert torch.equal(one, one * rounds)
