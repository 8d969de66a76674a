"""Attention of heads that share keys, and attention that is causal between blocks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

from mmrl.models.network.attention import ATTENTION, attend
from mmrl.models.network.pattern import BlockPattern, count_blocks

ROWS, HEADS, GROUPS, QUERIES, KEYS, WIDTH = 2, 6, 2, 3, 5, 4
MASKS = {"none": None, "keys": (ROWS, 1, 1, KEYS), "queries": (ROWS, 1, QUERIES, KEYS)}
MASKS |= {"heads": (1, HEADS, QUERIES, KEYS), "heads and keys": (ROWS, HEADS, 1, KEYS)}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("kernel", [ATTENTION["sdpa"], ATTENTION["eager"]])
@pytest.mark.parametrize("name", MASKS)
def test_heads_that_share_keys_attend_as_with_a_copy_each(name: str, kernel) -> None:
    q, k = draw(ROWS, HEADS, QUERIES, WIDTH), draw(ROWS, GROUPS, KEYS, WIDTH, seed=1)
    v, shape = draw(ROWS, GROUPS, KEYS, WIDTH, seed=2), MASKS[name]
    mask = None if shape is None else draw(*shape, seed=3) < 0.7
    copies = (x.repeat_interleave(HEADS // GROUPS, dim=1) for x in (k, v))
    expected = kernel(q, *copies, mask).transpose(1, 2).flatten(2)
    torch.testing.assert_close(attend(kernel, q, k, v, mask), expected)


def test_the_pattern_of_prompt_clean_and_noisy_is_that_of_the_public_training() -> None:
    """Prompt of 3 tokens in blocks counted from its right end, response of 4, blocks of 2."""
    blocks = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3]])
    copies = torch.tensor([[0] * 7 + [1] * 4])
    rows = (
        ["10000000000", "11100000000", "11100000000"]
        + ["11111000000"] * 2
        + ["11111110000"] * 2
        + ["11100001100"] * 2
        + ["11111000011"] * 2
    )
    dense = BlockPattern(blocks, copies).dense()[0, 0]
    assert ["".join(map(str, row.int().tolist())) for row in dense] == rows


@settings(deadline=None, max_examples=12)
@given(
    size=st.integers(1, 5),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    seed=st.integers(0, 99),
)
def test_the_mask_of_chosen_queries_has_their_rows_of_the_whole_mask(
    size: int, lengths: list[int], seed: int
) -> None:
    width = max(lengths)
    attend = torch.arange(width)[None] >= width - torch.tensor(lengths)[:, None]
    blocks = count_blocks(attend, size)
    draw = torch.Generator().manual_seed(seed)
    copies = torch.randint(0, 3, blocks.shape, generator=draw)
    chosen = torch.randint(0, width, (len(blocks), 4), generator=draw)
    for pattern in (BlockPattern(blocks), BlockPattern(blocks, copies, attend)):
        assert torch.equal(pattern.at(chosen).dense()[0], pattern.dense()[0][:, chosen[0]])
