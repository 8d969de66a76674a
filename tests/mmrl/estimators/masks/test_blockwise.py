"""blockwise: blocks before visible, blocks after hidden, the sum of the blocks' evidence bounds."""

import pytest
import torch

from tests.mmrl.estimators.exact import assert_mean, drawn, estimates, evidence_bound


def sum_of_blocks() -> float:
    """Of two blocks of two positions: the first with the second hidden, the second after it."""
    return evidence_bound(4, (0, 1), later=0b1100) + evidence_bound(4, (2, 3))


@pytest.mark.parametrize("num_draws", [1, 2, 3])
def test_the_estimate_is_unbiased(num_draws: int) -> None:
    values = estimates("blockwise", 4, rows=1500, num_draws=num_draws, block_size=2)
    assert_mean(values, sum_of_blocks())


def test_one_block_of_everything_is_the_plain_evidence_bound() -> None:
    values = estimates("blockwise", 3, block_size=8)
    assert_mean(values, evidence_bound(3))


def test_before_the_block_nothing_is_hidden_and_after_it_everything() -> None:
    passes = drawn("blockwise", 7, 60, num_draws=3, block_size=3)
    assert passes.blocks is not None
    block = (passes.blocks * passes.scored).amax(-1, keepdim=True)
    later = (passes.blocks > block) & (passes.blocks >= 0)
    earlier = (passes.blocks < block) & (passes.blocks >= 0)
    assert bool((passes.hidden | ~later).all() and (~passes.hidden | ~earlier).all())
    assert not bool((passes.scored & (passes.blocks != block)).any())


def test_the_draws_of_a_row_take_every_block_in_turn() -> None:
    passes = drawn("blockwise", 6, 40, num_draws=3, block_size=2)
    assert passes.blocks is not None
    blocks = (passes.blocks * passes.scored).amax(-1)
    assert torch.equal(blocks.sort(0).values, torch.arange(3)[:, None].expand(3, 40))
