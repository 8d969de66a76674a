"""How a launch places the model is planned from its configuration file."""

from pathlib import Path

import pytest

from mmrl.planning.planned_launch import use_launch
from mmrl.runtime.launch_checks import check_launch
from mmrl.runtime.placement import Placement, read_placement
from tests.mmrl.runs import ACCELERATE

FILES = sorted(path.relative_to(ACCELERATE).as_posix() for path in ACCELERATE.rglob("*.yaml"))
PLACES = {
    "one_process.yaml": ("whole", 1, 1, False),
    "multi_gpu.yaml": ("whole", 8, 1, False),
    "fsdp2.yaml": ("fsdp2", 8, 8, False),
    "fsdp2_offload.yaml": ("fsdp2", 8, 8, True),
    "hsdp.yaml": ("fsdp2", 8, 4, False),
    "zero2.yaml": ("zero2", 8, 8, False),
    "zero3.yaml": ("zero3", 8, 8, False),
    "zero3_offload.yaml": ("zero3", 8, 8, True),
    "two_nodes/multi_gpu.yaml": ("whole", 16, 1, False),
    "two_nodes/hsdp.yaml": ("fsdp2", 16, 8, False),
    "two_nodes/zero3.yaml": ("zero3", 16, 16, False),
}


def plan(name: str) -> Placement:
    with use_launch(str(ACCELERATE / name)):
        return read_placement()


@pytest.mark.parametrize("name", PLACES)
def test_the_plan_follows_the_launch_configuration(name: str) -> None:
    place = plan(name)
    found = place.way, place.world_size, place.shards, place.offload_weights
    assert found == PLACES[name]


@pytest.mark.parametrize("name", FILES)
def test_no_launch_configuration_of_the_project_is_refused_by_a_run(name: str) -> None:
    with use_launch(str(ACCELERATE / name)):
        check_launch()


def test_a_missing_launch_configuration_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="launch_config is '.*none.yaml'; it must be a file"):
        plan(str(tmp_path / "none.yaml"))
