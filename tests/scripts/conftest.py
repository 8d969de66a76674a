"""Checkpoints that have everything but the weights of the published ones."""

from pathlib import Path
from typing import Any

import pytest

from tests import by_path

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def skeletons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Skeletons of two blocks by family, with the public vocabulary."""
    script = by_path.load(ROOT / "scripts", "make_skeleton")
    folder = tmp_path_factory.mktemp("skeletons")
    for family in script.FAMILIES:
        width = {"magvitv2": 32, "amused": 256}.get(family, 128)
        config = script.Config(family=family, out=str(folder / family), layers=2, width=width)
        script.make_skeleton(config)
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture(scope="session")
def reward_networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Options of rewards whose networks are small and have random weights, by name."""
    import torch
    from transformers import Mask2FormerForUniversalSegmentation

    from tests.rewards.conftest import random_network, randomised, write_clip
    from tests.rewards.test_compositional import tiny_mask2former
    from tests.rewards.test_ocr import save_got

    folder = tmp_path_factory.mktemp("reward_networks")
    clip, hps, detector, got = (folder / name for name in ("clip", "hps.pt", "detector", "got"))
    clip.mkdir()
    got.mkdir()
    torch.save({"state_dict": random_network(write_clip(clip), seed=1).state_dict()}, hps)
    network = Mask2FormerForUniversalSegmentation(tiny_mask2former(80))
    randomised(network, seed=1).save_pretrained(detector)
    save_got(got)
    return {
        "hps": {"model": str(clip), "checkpoint": str(hps)},
        "compositional": {"model": str(detector), "clip_model": str(clip)},
        "ocr": {"model": str(got), "dtype": "float32", "max_tokens": 6},
    }
