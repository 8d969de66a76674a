"""full: one mask, so its estimate is the exact one."""

import torch

from tests.mmrl.estimators.exact import drawn, estimates, table


def test_every_token_is_scored_given_the_prompt_alone() -> None:
    torch.testing.assert_close(estimates("full", 4, rows=1), table(4)[-1].sum()[None])


def test_several_draws_are_the_same_pass() -> None:
    passes = drawn("full", 3, 2, num_draws=3)
    assert bool((passes.hidden == passes.hidden[0]).all())
    torch.testing.assert_close(estimates("full", 3, rows=1, num_draws=3), table(3)[-1].sum()[None])
