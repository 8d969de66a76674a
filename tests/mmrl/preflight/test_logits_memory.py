"""Estimates of logits end at the budget, where they are computed in parts, and count the copies
that autocast makes."""

from types import SimpleNamespace
from typing import Any

import pytest

from mmrl.preflight.logits_memory import count_logits, hold_logits
from mmrl.preflight.state_memory import count_casts, count_model
from mmrl.runtime.logits_budget import LOGITS_BUDGET, rows_at_once, rows_scored_at_once
from mmrl.samplers import SamplerConfig

COLUMNS = 126_464


def network(can_reduce: bool) -> Any:
    return SimpleNamespace(can_reduce=can_reduce, width=4096)


def test_an_update_holds_parts_above_the_budget_and_whole_logits_below() -> None:
    small, large = 100, 4096
    for parts in (True, False):
        size = 4.0 * small * COLUMNS
        assert hold_logits(network(parts), small, COLUMNS) == (size, 3 * size)
    kept, beside = hold_logits(network(True), large, COLUMNS, held=2)
    assert (kept, beside) == (2 * 2 * 4 * large * 4096, 3 * 4 * 256 * COLUMNS)
    assert sum(hold_logits(network(False), large, COLUMNS)) > 15 * (kept + beside) / 2


@pytest.mark.parametrize(("columns", "rows"), [(8192, 512), (COLUMNS, 256), (1_000_000, 33)])
def test_parts_fit_a_cache_but_keep_enough_rows_and_the_budget(columns: int, rows: int) -> None:
    assert rows_scored_at_once(columns) == rows <= rows_at_once(columns)


@pytest.mark.parametrize(("cache", "whole"), [("none", False), ("refresh", True)])
def test_a_sampler_holds_parts_unless_its_cache_needs_all_logits(cache: str, whole: bool) -> None:
    sampler = SamplerConfig(name="static", steps=8, cache=cache)
    found = count_logits(network(True), sampler, 16, 256, COLUMNS)
    every = 16.0 * 16 * 256 * COLUMNS
    assert found == every if whole else found <= 4 * LOGITS_BUDGET < every
    assert count_logits(network(False), sampler, 16, 256, COLUMNS) == every


def test_copies_of_weights_are_kept_unless_blocks_are_computed_again() -> None:
    tensors = [("embed.weight", 800.0, 0.0), ("blocks.0.w", 400.0, 0.0), ("blocks.1.w", 400.0, 0.0)]
    trained = [*tensors, ("head.weight", 100.0, 100.0)]
    model = count_model(trained, "adamw", 4)
    assert count_casts(trained, model, recompute=False) == (450.0, 0.0, 200.0)
    assert count_casts(trained, model, recompute=True) == (0.0, 200.0, 200.0)
    full = [(name, size, size) for name, size, _ in tensors]
    assert count_casts(full, count_model(full, "adamw", 4), recompute=True) == (0.0, 400.0, 400.0)
