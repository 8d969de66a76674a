"""The tokens with the highest entropy: which they are, and the passes that are left of them."""

import torch

from mmrl.estimators.highest_entropy import highest_entropy
from mmrl.generation.masked.hidden import Hidden
from mmrl.types import Passes


def random_passes(rows: int, seed: int = 0) -> tuple[torch.Tensor, Passes]:
    """Five draws over rows of twelve positions, and entropies."""
    draw = torch.Generator().manual_seed(seed)
    hidden = torch.rand(5, rows, 12, generator=draw) < 0.6
    scored = hidden & (torch.rand(5, rows, 12, generator=draw) < 0.7)
    return torch.rand(5, rows, 12, generator=draw), Passes(Hidden(hidden), scored, scored.float())


def test_each_rollout_keeps_its_share_of_the_most_uncertain_tokens_of_all_passes() -> None:
    entropy, passes = random_passes(3)
    for share in (0.01, 0.25, 0.5, 1.0):
        kept = highest_entropy(entropy, passes.scored, share)
        for row in range(3):
            among = passes.scored[:, row]
            number = -(-int(share * 100) * int(among.sum()) // 100)
            threshold = entropy[:, row][among].sort().values[-number]
            assert torch.equal(kept[:, row], among & (entropy[:, row] >= threshold))


def test_of_equal_entropies_the_first_are_kept_and_no_share_is_rounded_up_by_a_float() -> None:
    scored = torch.ones(2, 1, 10, dtype=torch.bool)
    kept = highest_entropy(torch.zeros(2, 1, 10), scored, 0.15)
    assert kept[0, 0].tolist() == [True] * 3 + [False] * 7 and not kept[1].any()
    nothing = torch.zeros_like(scored)
    assert not highest_entropy(torch.zeros(2, 1, 10), nothing, 0.5).any()


def test_kept_tokens_are_scored_in_the_states_they_were_and_empty_draws_are_dropped() -> None:
    entropy, passes = random_passes(3)
    kept = highest_entropy(entropy, passes.scored, 0.05)
    left = passes.restrict_to(kept)
    assert len(left) == int(kept.any(-1).sum(0).max()) < len(passes)
    for row in range(3):
        before = [k for k in range(len(passes)) if kept[k, row].any()]
        assert torch.equal(left.scored[: len(before), row], kept[before, row])
        assert torch.equal(left.query.mask[: len(before), row], passes.query.mask[before, row])
        assert not left.scored[len(before) :, row].any()
    assert torch.equal(left.weight, left.scored.float())
    none = passes.restrict_to(torch.zeros_like(kept))
    assert len(none) == 1 and not none.scored.any()
