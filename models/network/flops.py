"""Floating-point operations that a pass through the core cannot do without.

A product [m, k] x [k, n] counts 2 m k n. Counted are the matrix products of the blocks over
positions that are no padding, the two products of attention over the pairs of query and key that
attend, and the head at the wanted positions over the wanted columns; the queries, the output and
the MLP of the last block are needed there only. Norms, softmax, activations, the draws of a sampler
and what is computed again to save memory count nothing.

The backward pass is two products for each one of the forward pass, of the gradients of its inputs
and of its weights. Where only adapters are trained, frozen weights need no gradient; those of the
first block's q, k and v need none for their inputs either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmrl.models.network.attention import find_mask
from mmrl.models.network.core_config import ROLES, CoreConfig
from mmrl.models.network.pattern import BlockPattern


class PassSize(NamedTuple):
    """Size of a forward pass, over all its rows.

    Attributes:
        tokens: positions that the blocks compute.
        pairs: pairs of these and the keys that they attend to.
        wanted: positions whose logits are wanted.
        wanted_pairs: pairs of these and the keys that they attend to.
        columns: of the vocabulary, at each of them.
    """

    tokens: float
    pairs: float
    wanted: float
    wanted_pairs: float
    columns: int


class Adapter(NamedTuple):
    """Rank of a LoRA adapter, and the roles of the layers that have one."""

    rank: int
    roles: Sequence[str] = tuple(ROLES)


def row_sizes(
    rows: float, length: int, wanted: int, columns: int, computed: int | None = None
) -> PassSize:
    """The size of a pass over rows without padding that attend to all of themselves.

    Args:
        wanted: positions of each whose logits are wanted.
        computed: positions of each that the blocks compute, the others being cached; None for all.
    """
    computed = length if computed is None else computed
    return PassSize(
        rows * computed, rows * computed * length, rows * wanted, rows * wanted * length, columns
    )


def measure_pass(
    core: CoreConfig,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    positions: Tensor | None = None,
    columns: tuple[int, int] | None = None,
    cache: Any = None,
    blocks: Tensor | None = None,
    copies: Tensor | None = None,
    **_: Any,
) -> PassSize:
    """The size of a call of `MaskedTokenModel.forward`, from its arguments."""
    rows, length = input_ids.shape
    span = (0, length, length) if cache is None else tuple(cache.span)
    first, end = columns or (0, core.vocab_size)
    like = torch.empty(rows, length, 0, device=input_ids.device)
    mask = find_mask(attention_mask, like, span, core.block_size, blocks, copies)  # type: ignore[arg-type]
    if isinstance(mask, BlockPattern):
        mask = mask.dense()
    elif mask is None:
        mask = torch.ones(1, 1, 1, span[2], dtype=torch.bool, device=input_ids.device)
    elif mask.dtype != torch.bool:
        mask = mask > torch.finfo(mask.dtype).min / 2
    keys = mask[:, 0].sum(-1).expand(rows, length)  # [B, n], keys of each query
    used = keys > 0
    if attention_mask is not None and attention_mask.dim() == 2:
        index = getattr(cache, "index", None)
        own = attention_mask[:, span[0] : span[1]].bool()
        used = used & (own if index is None else own.gather(1, index))
    wanted = used if positions is None else positions
    sums = [used.sum(), (keys * used).sum(), wanted.sum(), (keys * wanted).sum()]
    return PassSize(*(float(each) for each in sums), columns=end - first)


def count_forward(core: CoreConfig, size: PassSize, adapter: Adapter | None = None) -> float:
    """Operations of a forward pass; with an adapter those of its products as well."""
    ranks = _ranks(adapter)
    layers = (2 * n * (a * b + ranks[role] * (a + b)) for role, n, a, b in _layers(core, size))
    return sum(layers) + _attention(core, size) + _head(core, size)


def count_backward(core: CoreConfig, size: PassSize, adapter: Adapter | None = None) -> float:
    """Operations of the backward pass of a forward pass, of which everything is trained, or the
    adapter alone."""
    if adapter is None:
        return 2 * count_forward(core, size)
    ranks, total = _ranks(adapter), 2 * _attention(core, size) + _head(core, size)
    for number, (role, n, a, b) in enumerate(_layers(core, size)):
        total += 2 * n * (a * b + 2 * ranks[role] * (a + b))
        if number < len("qkv"):  # nothing is trained below the first block's inputs
            total -= 2 * n * a * (b + ranks[role])
    return total


def shapes(core: CoreConfig) -> dict[str, tuple[int, int]]:
    """Inputs and outputs of the layers of a block, by role."""
    width, queries = core.hidden_size, core.num_heads * core.head_dim
    keys = core.num_kv_heads * core.head_dim
    return {
        "q": (width, queries),
        "k": (width, keys),
        "v": (width, keys),
        "o": (queries, width),
        "gate": (width, core.mlp_size),
        "up": (width, core.mlp_size),
        "down": (core.mlp_size, width),
    }


def _ranks(adapter: Adapter | None) -> dict[str, int]:
    roles = () if adapter is None else adapter.roles
    return {role: adapter.rank if adapter and role in roles else 0 for role in ROLES}


def _layers(core: CoreConfig, size: PassSize) -> Iterator[tuple[str, float, int, int]]:
    """Role, computed positions, inputs and outputs of every layer, block by block; the last block
    computes all but keys and values at the wanted positions alone."""
    for block in range(core.num_layers):
        for role, (inputs, outputs) in shapes(core).items():
            everywhere = block < core.num_layers - 1 or role in "kv"
            yield role, size.tokens if everywhere else size.wanted, inputs, outputs


def _attention(core: CoreConfig, size: PassSize) -> float:
    pairs = size.pairs * (core.num_layers - 1) + size.wanted_pairs
    return 4 * pairs * core.num_heads * core.head_dim


def _head(core: CoreConfig, size: PassSize) -> float:
    return 2 * size.wanted * core.hidden_size * size.columns
