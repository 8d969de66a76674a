"""LAION's aesthetic score against its formula, written out here a second time."""

from pathlib import Path

import open_clip
import pytest
import torch
from PIL import Image
from torch import Tensor

from mmrl.rewards import build_reward
from mmrl.types import Sample

WIDTHS = (24, 1024, 128, 64, 16, 1)
PLACES = (0, 2, 4, 6, 7)


@pytest.fixture
def layers() -> dict[str, Tensor]:
    """Weights under their published names."""
    random = torch.Generator().manual_seed(0)
    weights = {}
    for place, a, b in zip(PLACES, WIDTHS, WIDTHS[1:], strict=False):
        weights[f"layers.{place}.weight"] = torch.randn(b, a, generator=random) / a**0.5
        weights[f"layers.{place}.bias"] = torch.randn(b, generator=random)
    return weights


@pytest.fixture
def entry(clip_directory: Path, layers: dict[str, Tensor], tmp_path: Path) -> dict:
    path = tmp_path / "sac+logos+ava1-l14-linearMSE.pth"
    torch.save(layers, path)
    model = {"model": str(clip_directory), "device": "cpu"}
    return {"name": "aesthetic", "checkpoint": str(path), **model}


def samples_of(pictures: list[Image.Image]) -> list[Sample]:
    return [Sample("whatever", image) for image in pictures]


def test_the_score_is_an_affine_map_of_clips_normalised_features(
    entry: dict, layers: dict[str, Tensor], pictures: list[Image.Image]
) -> None:
    name = f"local-dir:{entry['model']}"
    network, transform = open_clip.create_model_from_pretrained(name)
    with torch.no_grad():
        rows = network.eval().encode_image(torch.stack([transform(p) for p in pictures]))
    rows = rows / rows.norm(dim=-1, keepdim=True)
    for place in PLACES:
        rows = rows @ layers[f"layers.{place}.weight"].T + layers[f"layers.{place}.bias"]
    scores = torch.tensor(build_reward(entry)(samples_of(pictures)))
    torch.testing.assert_close(scores, rows[:, 0], atol=1e-4, rtol=0)
    assert scores.std() > 1e-3, "random weights must tell images apart"


def test_layers_for_another_clip_and_layers_that_lack_one_are_refused(
    entry: dict, layers: dict[str, Tensor]
) -> None:
    path = Path(entry["checkpoint"])
    torch.save({**layers, "layers.0.weight": torch.zeros(1024, 768)}, path)
    with pytest.raises(ValueError, match="(?s)does not fit the features.*layers.0.weight"):
        build_reward(entry)
    torch.save({k: v for k, v in layers.items() if k != "layers.7.bias"}, path)
    with pytest.raises(ValueError, match="missing.*layers.7.bias"):
        build_reward(entry)
