"""What a plan says of seconds, disk and downloads, against arithmetic by hand."""

import re

import pytest

from mmrl.algorithms.forwards import Forwards
from mmrl.config import load_config
from mmrl.models.network.network import Network
from mmrl.planning.cost import EFFICIENCY, count_disk, describe_download, describe_seconds
from mmrl.planning.memory import count_policy
from mmrl.pretrained.known import find_sizes, outline_policy
from mmrl.rl_config import RLConfig
from mmrl.rollouts.tasks import Task
from mmrl.runtime.devices import read_devices
from mmrl.runtime.placement import Placement

COST = Forwards(new=1, old=1, reference=1)


def of_recipe(name: str) -> tuple[RLConfig, Network]:
    config = load_config(RLConfig, [f"config=configs/rl/{name}.yaml"])
    return config, outline_policy(find_sizes(config.model.path)[1])


def seconds(name: str, devices: str, written: int) -> tuple[float, float]:
    """Of rollouts and update of a step of the first task of a recipe on 8 devices."""
    config, network = of_recipe(name)
    task = Task(*next(iter(config.tasks.items())), dry=True)
    where = Placement("whole", 8, named=read_devices(devices)[1])
    [line] = describe_seconds(config, network, task, written, COST, where)
    rollout, update = re.findall(r"(\d+) s of", line)
    return float(rollout), float(update)


def test_rows_that_are_computed_whole_are_bound_by_operations() -> None:
    rollout, update = seconds("llada_gsm8k", "8xA100-80GB", 256)
    step = 2 * 8.0156e9 * (200 + 256) * 12 / (EFFICIENCY * 312e12)  # 96 rollouts by 8 devices
    assert rollout == pytest.approx(128 * step, rel=0.01)
    # three forwards; a backward without gradients of weights, recomputed; 12 inner iterations
    assert update == pytest.approx((3 + 2) * 12 * step, rel=0.02)


def test_appended_tokens_are_bound_by_reading_the_weights() -> None:
    rollout, _ = seconds("qwen_vl_grpo_geo3k", "8xH100", 512)
    assert rollout == pytest.approx(4 * 512 * 2 * 8.29e9 / 3.35e12, rel=0.06)  # 64 rows by 16


def test_disk_and_download_are_of_what_is_stored() -> None:
    config, network = of_recipe("llada_gsm8k")
    assert describe_download(network) == "14.93 GiB to download"
    sizes = count_policy(config, network)
    # two checkpoints, and the final adapter; AdamW has two moments
    assert count_disk(config, sizes) == 7 * sizes.adapter > 2**33
