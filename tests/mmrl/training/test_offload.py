"""`offload`: what no update reads is in the memory of the host during updates."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mmrl import rl
from mmrl.models.network.pipeline_parts import PipelineParts
from mmrl.rewards.networks.placement import FROZEN, NetworkOptions, count_bytes, move_networks
from mmrl.training.trainer import Trainer
from tests.mmrl.flow_runs import words
from tests.mmrl.same_runs import equal_metrics

PROMPTS = Path("datasets/shapes/train.jsonl").resolve()


class Travelled(nn.Linear):
    """Notes where it is moved."""

    def to(self, place: Any) -> "Travelled":  # type: ignore[override]
        self.places = [*getattr(self, "places", []), str(place)]
        return self


def test_networks_of_rewards_go_to_the_host_and_back_to_their_device() -> None:
    network = NetworkOptions(device="meta").freeze(Travelled(2, 3))
    move_networks(away=True)
    move_networks(away=False)
    assert network.places == ["meta", "cpu", "meta"]
    assert count_bytes([network]) == 4 * 9
    on_host = NetworkOptions(device="cpu").freeze(nn.Linear(2, 3))
    assert on_host in FROZEN and count_bytes([on_host]) == 0


def test_parts_of_a_pipeline_are_away_during_updates_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    whole = PipelineParts.move

    def move(parts: PipelineParts, device: torch.device | str) -> None:
        events.append(f"to {device}, {parts._decoder is not None}")
        whole(parts, device)

    update = Trainer._update
    monkeypatch.setattr(PipelineParts, "move", move)
    monkeypatch.setattr(
        Trainer, "_update", lambda *given: (events.append("update"), update(*given))[1]
    )
    more = f"tasks.shapes.prompts={PROMPTS}"
    assert rl.main([*words(PROMPTS, tmp_path / "moved"), more, "offload=true"]) == 0
    assert events == ["to cpu, True", "update", "to cpu, True"] * 2, "a run on the CPU"
    assert rl.main([*words(PROMPTS, tmp_path / "whole"), more]) == 0
    equal_metrics(tmp_path / "moved", tmp_path / "whole")
