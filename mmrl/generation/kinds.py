"""The table of the kinds of generation."""

from collections.abc import Mapping
from typing import Any

from mmrl.generation.causal.kind import CAUSAL
from mmrl.generation.flow.kind import FLOW
from mmrl.generation.generation import Generation, Sampler
from mmrl.generation.masked.kind import MASKED
from mmrl.generation.strategy import Strategy

GENERATIONS: dict[str, Generation] = {"masked": MASKED, "causal": CAUSAL, "flow": FLOW}
"""Kinds of generation by `Canvas.kind`."""


def _all_of(tables: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, str]]:
    """The entries of all kinds by name, and the kind of each."""
    entries, kinds = {}, {}
    for kind, table in tables.items():
        assert not entries.keys() & table.keys(), "a name belongs to one kind"
        entries |= table
        kinds |= dict.fromkeys(table, kind)
    return entries, kinds


SAMPLERS: dict[str, Sampler]
SAMPLERS, SAMPLER_KINDS = _all_of({kind: each.samplers for kind, each in GENERATIONS.items()})
"""Samplers of all kinds by name, and the kind of each."""
STRATEGIES: dict[str, Strategy]
STRATEGIES, STRATEGY_KINDS = _all_of({kind: each.strategies for kind, each in GENERATIONS.items()})
"""Strategies of all kinds by name, and the kind of each."""
