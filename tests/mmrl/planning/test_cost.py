"""What a plan says of seconds, disk and downloads, against arithmetic by hand."""

import re
from pathlib import Path

import pytest

from mmrl.algorithms.forwards import Forwards
from mmrl.config import load_config
from mmrl.models.network.network import Network
from mmrl.planning.cost import EFFICIENCY, count_disk, describe_download, describe_seconds
from mmrl.planning.memory import count_policy, count_row
from mmrl.pretrained.known import Known, find_sizes, known_config, outline_policy
from mmrl.pretrained.model_config import OldPolicyConfig
from mmrl.rl_config import RLConfig
from mmrl.rollouts.tasks import Task
from mmrl.runtime.devices import read_devices
from mmrl.runtime.placement import Placement
from tests.mmrl.runs import World, rollouts, run_config, trainer_of

COST = Forwards(new=1, old=1, reference=1)


def of_recipe(name: str) -> tuple[RLConfig, Network, Task, Known]:
    config = load_config(RLConfig, [f"config=configs/rl/{name}.yaml"])
    raw, task = find_sizes(config.model.path)[1], Task(*next(iter(config.tasks.items())), dry=True)
    return config, outline_policy(raw), task, Known(config.model, raw)


def seconds(name: str, devices: str, turns: int = 1) -> list[float]:
    """Of rollouts and update of a step of the first task of a recipe on 8 devices, and hours."""
    config, network, task, known = of_recipe(name)
    where = Placement("whole", 8, named=read_devices(devices)[1])
    [line] = describe_seconds(config.changed(turns=turns), network, task, known, COST, where)
    return [float(number) for number in re.findall(r"(\d+) (?:s of|hours)", line)]


def test_rows_that_are_computed_whole_are_bound_by_operations() -> None:
    rollout, update, hours = seconds("llada_gsm8k", "8xA100-80GB", turns=2)
    step = 2 * 8.0156e9 * (200 + 256 + 3) * 12 / (EFFICIENCY * 312e12)  # 96 rollouts by 8 devices
    assert rollout == pytest.approx(128 * step, rel=0.01)
    # three forwards; a backward without gradients of weights, recomputed; 12 inner iterations
    assert update == pytest.approx((3 + 2) * 12 * step, rel=0.02)
    steps = of_recipe("llada_gsm8k")[0].max_steps
    assert hours == pytest.approx(steps * (rollout + update / 2) / 3600, abs=0.6)


def test_images_of_prompts_and_copies_of_blocks_count() -> None:
    rows = {"lladav_trace_rl": (4536, 4536), "mmada_v_trace_rl": (1667, 1667)}
    rows |= {"qwen_image_edit_flow_grpo": (2179, 2179), "sdar_trace_rl": (2787, 4787)}
    for name, (sampled, scored) in rows.items():
        config, network, task, known = of_recipe(name)
        assert count_row(config, network, known, task)[2:] == (sampled, scored), name


def test_appended_tokens_are_bound_by_reading_the_weights() -> None:
    rollout, update, _ = seconds("qwen_vl_grpo_geo3k", "8xH100")
    assert rollout == pytest.approx(4 * 512 * 2 * 8.29e9 / 3.35e12, rel=0.06)  # 64 rows by 16
    tokens = 1024 + 1024 + 512 + 3  # of the prompt, of its image, of the answer
    assert update == pytest.approx(5 * 2 * 8.29e9 * tokens * 64 / (EFFICIENCY * 989e12), rel=0.03)


def test_disk_and_download_are_of_what_is_stored() -> None:
    config, network, *_ = of_recipe("llada_gsm8k")
    assert describe_download(network) == "14.93 GiB to download"
    sizes = count_policy(config, network)
    # two checkpoints of adapter, weights, reference and AdamW's two moments, and the final adapter
    assert count_disk(config, network, sizes) == 11 * sizes.adapter > 2**33
    other = config.changed(merge_adapter=True, sync_ref_model=False)
    assert count_disk(other, network, sizes) == 8 * sizes.adapter + sizes.weights


@pytest.mark.parametrize("lora", [None, {"r": 64}], ids=["full", "lora"])
def test_checkpoints_take_the_disk_that_is_planned(
    lora: dict | None, world: World, tmp_path: Path
) -> None:
    own = {"old_policy": OldPolicyConfig(), "sync_ref_model": True, "lora": lora}
    method = {"name": "trace_rl", "slice_size": 1, "value": {}, "beta": 0.1}
    config = run_config(world, tmp_path, algorithm=method, **own)
    trainer = trainer_of(config)
    trainer.update(rollouts(config, trainer))
    network = outline_policy(known_config(world.policy) or {})
    one = config.changed(max_steps=config.save_steps)  # a checkpoint, and the final model
    planned = count_disk(one, network, count_policy(config, network))
    trainer.save(tmp_path / "saved")
    trainer.save_model(tmp_path / "final")
    files = [path for kind in ("*.safetensors", "*.pt") for path in tmp_path.rglob(kind)]
    assert planned == pytest.approx(sum(path.stat().st_size for path in files), rel=0.15)
