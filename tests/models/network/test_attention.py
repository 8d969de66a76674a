"""Attention of heads that share keys and values."""

import pytest
import torch
from torch import Generator, Tensor

from mmrl.models.network.attention import attend, eager_attention, sdpa_attention

ROWS, HEADS, GROUPS, QUERIES, KEYS, WIDTH = 2, 6, 2, 3, 5, 4
MASKS = {
    "none": None,
    "keys": (ROWS, 1, 1, KEYS),
    "queries": (ROWS, 1, QUERIES, KEYS),
    "heads": (1, HEADS, QUERIES, KEYS),
    "heads and keys": (ROWS, HEADS, 1, KEYS),
}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("kernel", [sdpa_attention, eager_attention])
@pytest.mark.parametrize("name", MASKS)
def test_heads_that_share_keys_attend_as_with_a_copy_each(name: str, kernel) -> None:
    q, k = draw(ROWS, HEADS, QUERIES, WIDTH), draw(ROWS, GROUPS, KEYS, WIDTH, seed=1)
    v, shape = draw(ROWS, GROUPS, KEYS, WIDTH, seed=2), MASKS[name]
    mask = None if shape is None else draw(*shape, seed=3) < 0.7
    copies = (x.repeat_interleave(HEADS // GROUPS, dim=1) for x in (k, v))
    expected = kernel(q, *copies, mask).transpose(1, 2).flatten(2)
    torch.testing.assert_close(attend(kernel, q, k, v, mask), expected)
