"""Causal networks that see behind our interface, against transformers' own forward pass."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForImageTextToText

from mmrl.models import load_model
from mmrl.models.families import find_family
from mmrl.models.loading import save_model
from mmrl.models.network.causal_vlm import CausalVLM
from tests.models.causal import CLOSE, IMAGE, OPEN, SEEING, write_seeing
from tests.models.kept_bytes import count_kept

ROWS = torch.tensor(
    [
        [0, 0, OPEN, *[IMAGE] * 4, CLOSE, 7, 9, 11, 3],
        [5, OPEN, *[IMAGE] * 2, CLOSE, 6, 5, 12, 13, 14, 15, 16],
        [8, OPEN, *[IMAGE] * 4, CLOSE, 6, 5, 12, 13, 14],
    ]
)
MASK = (ROWS != 0).long()
GRIDS = torch.tensor([[1, 4, 4], [1, 2, 4]])
PIXELS = torch.randn(16 + 8, 3 * 2 * 4 * 4, generator=torch.Generator().manual_seed(0))
FEATURES = {"pixel_values": PIXELS, "image_grid_thw": GRIDS, "image_of": torch.tensor([0, 1, 0])}
"""Two images; the first and the last row show the same one."""


@pytest.fixture(params=SEEING)
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[CausalVLM, Any]:
    """A network, and transformers' model of the same weights."""
    model = write_seeing(tmp_path, request.param)
    network = load_model(tmp_path)
    assert isinstance(network, CausalVLM) and find_family(network.public_config).KIND == "causal"
    return network, model


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_rows_with_images_and_without_have_the_logits_of_transformers(
    both: tuple[CausalVLM, Any],
) -> None:
    network, model = both
    found = network(ROWS, MASK, features=FEATURES).logits
    shown = {"pixel_values": torch.cat((PIXELS, PIXELS[:16])), "image_grid_thw": GRIDS[[0, 1, 0]]}
    kinds = (ROWS == IMAGE).int()
    expected = model(ROWS, attention_mask=MASK, mm_token_type_ids=kinds, **shown).logits
    close(found[:, 3:], expected[:, 2:-1])
    words = torch.tensor([[5, 6, 7, 8]])
    close(network(words).logits[:, 1:], model(words).logits[:, :-1])


@torch.no_grad()
def test_a_row_equals_the_row_alone_and_a_cache_changes_nothing(
    both: tuple[CausalVLM, Any],
) -> None:
    network, _ = both
    expected = network(ROWS, MASK, features=FEATURES).logits
    one = {"pixel_values": PIXELS[:16], "image_grid_thw": GRIDS[:1], "image_of": torch.tensor([0])}
    close(network(ROWS[:1, 2:], features=one).logits[0, 1:], expected[0, 3:])
    cache = network.new_cache()
    close(network(ROWS[:, :8], MASK[:, :8], features=FEATURES, cache=cache).logits, expected[:, 8])
    cache.take_rows(index := torch.tensor([0, 0, 1, 2]))
    for column in (8, 9, 10):
        read = ROWS[index, column : column + 1], MASK[index, : column + 1]
        close(network(*read, cache=cache).logits, expected[index, column + 1])


def test_the_tower_is_frozen_and_its_projection_learns(both: tuple[CausalVLM, Any]) -> None:
    network, _ = both
    for trained, features in ((False, FEATURES), (True, FEATURES), (True, None)):
        network.train_tower(trained)
        network.zero_grad()
        rows = ROWS if features else ROWS[:, 8:]
        network(rows, features=features).logits.logsumexp(-1).sum().backward()
        tower = {n: p for n, p in network.named_parameters() if ".visual." in n}
        reached = {name for name, weight in tower.items() if weight.grad is not None}
        assert reached == {name for name in tower if trained or "merger" in name}
        assert bool(tower["body.visual.patch_embed.proj.weight"].requires_grad) == trained
    roles = network.list_layers(network.layer_roles)
    assert len(roles) == 2 * 7 and not any("visual" in name for name in roles)
    for blank in network.blank():
        assert network(**blank).logits.shape == (1, 1, network.vocab_size)


@pytest.mark.parametrize("trained", [True, False])
def test_what_a_tower_keeps_is_counted(both: tuple[CausalVLM, Any], trained: bool) -> None:
    network, _ = both
    network.train_tower(trained)
    counted, _ = network.count_images(6, recompute=False, size=4)
    assert 0.7 < counted / count_kept(network, lambda: network._encode(FEATURES)) < 1.3
    network.requires_grad_(False)
    assert network.count_images(6, recompute=False, size=4)[0] == 0.0


@pytest.mark.parametrize("name", SEEING)
def test_transformers_reads_what_is_saved(name: str, tmp_path: Path) -> None:
    model = write_seeing(tmp_path / "given", name)
    save_model(load_model(tmp_path / "given"), tmp_path / "saved")
    kind = AutoModelForImageTextToText
    again = kind.from_pretrained(tmp_path / "saved", dtype=torch.float32)
    for key, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], tensor), key
