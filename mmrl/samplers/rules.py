"""The commit rules by name, and what is known of each before its code is imported."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from mmrl.samplers.prediction import Prediction
    from mmrl.samplers.state import Proposal, State


class Rule(NamedTuple):
    """A commit rule: which positions a step may write, and what it writes there.

    `module` has the functions `candidates`, `propose` and `propose_reference`, which reproduces a
    public sampler's draws; its logits are computed at every position of the block. `ranks`: the
    rule orders positions by how certain they are. `adaptive`: the public sampler ends a block when
    it is full rather than after its steps. `traced`: `written_at` tells in which order a canvas was
    written. `reads`: settings that not all rules look at, and this one does.
    """

    module: str
    ranks: bool = False
    adaptive: bool = False
    traced: bool = True
    reads: tuple[str, ...] = ()

    def candidates(self, state: State) -> Tensor:
        """[B, L] bool: the positions this step may write."""
        return importlib.import_module(self.module).candidates(state)

    def propose(self, state: State, where: Tensor, prediction: Prediction) -> Proposal:
        """What is written where."""
        return importlib.import_module(self.module).propose(state, where, prediction)

    def propose_reference(self, state: State, where: Tensor, prediction: Prediction) -> Proposal:
        """The same with a public sampler's draws."""
        return importlib.import_module(self.module).propose_reference(state, where, prediction)


RULES = {
    "dynamic": Rule(
        "mmrl.samplers.dynamic", ranks=True, adaptive=True, reads=("target", "threshold")
    ),
    "emerge": Rule("mmrl.samplers.emerge", reads=("schedule",)),
    "left_to_right": Rule("mmrl.samplers.left_to_right"),
    "maskgit": Rule("mmrl.samplers.maskgit", reads=("schedule", "choice_temperature")),
    "static": Rule("mmrl.samplers.static", ranks=True, reads=("target",)),
}
"""Commit rules by the name used in configurations."""
