"""Values of states, and what they do to the gradient, by exact sums over all texts of a tiny world.

Three response tokens out of three ids: the first step writes two of them at once, the second step
the last one, so there are 27 trajectories and ten states.
"""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from mmrl.algorithms import AlgorithmConfig, LossInputs, load_algorithm, policy_loss
from mmrl.algorithms.aggregation import BatchSize
from mmrl.algorithms.algorithm_config import ValueConfig
from mmrl.algorithms.loss import Weights
from mmrl.algorithms.value import compute_advantages
from mmrl.estimators import score
from mmrl.generation.masked.strategies import STRATEGIES
from mmrl.generation.tokens.scoring.scoring import predict_values
from mmrl.models.network.value_head import ValueHead, ValueNetwork, copy_backbone
from mmrl.types import Passes, Rollout
from tests.mmrl.canvases import generators, small_canvas
from tests.models.networks import bare_policy, small_network

FIRST, NUMBER, IDS = 4, 3, (12, 15)
ROWS = len(range(*IDS)) ** NUMBER
METHOD: AlgorithmConfig = load_algorithm({"name": "trace_rl", "slice_size": 1, "beta": 0.0})


def value_network(seed: int = 1) -> ValueNetwork:
    """A value model on a small network, with a head that is far from zero."""
    network = small_network(seed)
    head = ValueHead(network.core.hidden_size, "cpu", torch.float32)
    torch.nn.init.normal_(head.weight, generator=torch.Generator().manual_seed(seed))
    return ValueNetwork(copy_backbone(network), head).eval()


def finished(**options: Any) -> tuple[Rollout, Passes]:
    """Three rollouts of six tokens with random steps, and the passes of their traces."""
    canvas = small_canvas(padding=True, ragged=True, **options)
    draw = torch.Generator().manual_seed(2)
    canvas.tokens[canvas.response] = torch.randint(
        *canvas.columns, (int(canvas.response.sum()),), generator=draw
    )
    steps = torch.randint(0, 4, canvas.tokens.shape, generator=draw)
    rollout = Rollout(canvas, steps.masked_fill(~canvas.response, -1), torch.zeros(3, 11), {})
    return rollout, STRATEGIES["trace"](rollout, METHOD, generators(3))


@torch.no_grad()
def test_a_value_is_the_head_on_the_hidden_state_of_its_own_position() -> None:
    rollout, passes = finished()
    network, canvas = value_network(), rollout.canvas
    values = predict_values(network, canvas, passes)
    assert values.dtype == torch.float32 and not bool(values[~passes.scored].any())
    for k, row in itertools.product(range(len(passes)), range(3)):
        tokens = canvas.tokens[row].masked_fill(passes.query.mask[k, row], canvas.mask_id)
        attend = None if canvas.attend is None else canvas.attend[row, None]
        hidden = network.backbone.hidden_states(tokens[None], attention_mask=attend)[0]
        expected = network.head(hidden) * passes.scored[k, row]
        torch.testing.assert_close(values[k, row], expected)


def world() -> tuple[Rollout, Passes, Tensor]:
    """All 27 texts, the passes of their two steps, and arbitrary rewards [27]."""
    canvas = small_canvas(1, NUMBER)[torch.zeros(ROWS, dtype=torch.long)]
    canvas.columns = IDS
    texts = list(itertools.product(range(*IDS), repeat=NUMBER))
    canvas.tokens[:, FIRST : FIRST + NUMBER] = torch.tensor(texts)
    written_at = torch.full(canvas.tokens.shape, -1)
    written_at[:, FIRST : FIRST + NUMBER] = torch.tensor([0, 0, 1])
    rollout = Rollout(canvas, written_at, torch.zeros(canvas.tokens.shape), {})
    rewards = torch.randn(ROWS, generator=torch.Generator().manual_seed(4))
    return rollout, STRATEGIES["trace"](rollout, METHOD, generators(ROWS)), rewards


def chances(policy: Any, rollout: Rollout, passes: Passes) -> Tensor:
    """[27] how likely each trajectory is; they sum to one."""
    with torch.no_grad():
        likely = score(policy, rollout.canvas, passes)[0].sum((0, 2)).exp()
    assert float(likely.sum()) == pytest.approx(1.0, abs=1e-5)
    return likely


def expected_gradient(policy: Any, advantages: Tensor) -> Tensor:
    """The exact expectation of the policy's gradient over all trajectories."""
    rollout, passes, _ = world()
    weights = chances(policy, rollout, passes)[:, None] * passes.scored
    new = score(policy, rollout.canvas, passes)
    inputs = LossInputs(passes, new, advantages, weights=Weights(weights, weights))
    loss, _ = policy_loss(inputs, METHOD, BatchSize(ROWS, 1, 1, NUMBER))
    gradients = torch.autograd.grad(loss, list(policy.network.parameters()))
    return torch.cat([gradient.flatten() for gradient in gradients])


def outcome(rewards: Tensor, passes: Passes) -> Tensor:
    """[B] rewards of whole rollouts -> [B, L], earned up to the last position."""
    earned = torch.zeros(passes.scored.shape[1:])
    earned[:, -1] = rewards
    return earned


def test_a_baseline_leaves_the_expected_gradient_as_it_is() -> None:
    policy, (rollout, passes, rewards) = bare_policy(small_network(3)), world()
    expected = expected_gradient(policy, rewards)
    with torch.no_grad():
        values = predict_values(value_network(), rollout.canvas, passes)
    assert float(values.std()) > 0.5
    advantages = compute_advantages(
        values, outcome(rewards, passes), passes.scored, ValueConfig()
    ).advantages
    found = expected_gradient(policy, advantages)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    assert float(expected.abs().max()) > 0.01
