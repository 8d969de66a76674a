"""Checkpoints that have everything but the weights of the published ones."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import by_path

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = ["llada", "llava_llada", "mmada", "dream", "sdar", "magvitv2"]
FAMILIES += ["lumina", "amused"] if find_spec("diffusers") else []


@pytest.fixture(scope="session")
def skeletons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Skeletons of two blocks by family, with the public vocabulary."""
    script = by_path.load(ROOT / "scripts", "make_skeleton")
    folder = tmp_path_factory.mktemp("skeletons")
    for family in FAMILIES:
        width = {"magvitv2": 32, "amused": 256}.get(family, 128)
        config = script.Config(family=family, out=str(folder / family), layers=2, width=width)
        script.make_skeleton(config)
    return {path.name: path for path in folder.iterdir()}
