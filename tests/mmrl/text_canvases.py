"""Text canvases, samplers and policies for tests of the denoising loop."""

from typing import Any

import torch
from hypothesis import settings
from hypothesis import strategies as st

from mmrl.config import merge
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.masked.samplers import RULES
from mmrl.samplers import SamplerConfig
from tests.mmrl.canvases import MASK_ID
from tests.models.networks import bare_policy, small_network

POLICY = bare_policy(small_network())
# sums of float64 differ between shapes of a batch by far less than what could move a draw
EXACT = bare_policy(small_network().double())
EOS, EOT = 5, 17
LENGTH = 12
promise = settings(derandomize=True, deadline=None, max_examples=12)


def canvas_of(widths: list[int], seed: int = 0, ends: tuple[int, ...] = (EOS, EOT)) -> MaskedCanvas:
    """Random prompts of some widths, padded on the left, and 12 masks; any id may be written."""
    draw = torch.Generator().manual_seed(seed)
    width = max(widths)
    columns = torch.arange(width + LENGTH).expand(len(widths), -1)
    tokens = torch.randint(6, 17, columns.shape, generator=draw)
    # a prompt is the same whatever it is batched with
    for row, own in enumerate(widths):
        named = torch.Generator().manual_seed(1000 * seed + row)
        tokens[row, width - own : width] = torch.randint(6, 17, (own,), generator=named)
    attend = columns >= torch.tensor([[width - own] for own in widths])
    response = columns >= width
    tokens = tokens.masked_fill(response, MASK_ID).masked_fill(~attend, EOS)
    other = torch.full_like(tokens, MASK_ID)
    keep = None if bool(attend.all()) else attend
    return MaskedCanvas(tokens, response, keep, (0, 40), MASK_ID, other, keep, stop_ids=ends)


def config(**changes: Any) -> SamplerConfig:
    """Settings without the combinations that are refused."""
    if not RULES[changes.get("name", "static")].ranks and changes.get("eos") == "last":
        changes["eos"] = "suppress"
    if changes.get("cache", "none") == "none":
        changes["window"] = None
    return merge(SamplerConfig, changes)  # leaves out what the rule does not read


SAMPLERS = st.builds(
    config,
    name=st.sampled_from(sorted(RULES)),
    steps=st.sampled_from([6, 12]),
    block_size=st.sampled_from([None, 2, 4, 6, 12]),
    cfg_scale=st.sampled_from([0.0, 1.5]),
    temperature=st.sampled_from([0.0, 0.7, 1.0]),
    target=st.sampled_from(["confidence", "random"]),
    threshold=st.sampled_from([0.3, 0.9]),
    eos=st.sampled_from(["free", "suppress", "last", "stop", "leave"]),
    cache=st.sampled_from(["none", "prefix", "dual"]),
    window=st.sampled_from([None, 0, 3]),
)
WIDTHS = st.lists(st.integers(1, 9), min_size=1, max_size=4)


def wants_to_end() -> Any:
    """A policy that likes to end texts."""
    policy = bare_policy(small_network())
    with torch.no_grad():
        policy.network.head.weight[EOS] *= 1.3
        policy.network.head.weight[EOT] *= 1.3
    return policy
