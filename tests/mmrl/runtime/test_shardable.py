"""Policies that processes cannot share are refused before a weight is read."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mmrl import rl, sft
from mmrl.config import ConfigError, to_yaml
from mmrl.models.layouts.layout_config import LayoutConfig
from mmrl.models.quantization_config import QuantizationConfig
from mmrl.objectives.policy_start import outline_policy
from mmrl.objectives.start_config import StartConfig
from mmrl.planning.planned_launch import use_launch
from mmrl.planning.run_checks import check_run
from mmrl.pretrained.model_config import ModelConfig
from tests.mmrl import supervised_runs
from tests.mmrl.runs import ACCELERATE, LORA, command_line, run_config
from tests.models.amused import write_amused

KINDS = {"fsdp2_cpu2.yaml": "FSDP", "zero2_cpu2.yaml": "DEEPSPEED", "zero3_cpu2.yaml": "DEEPSPEED"}
FOUR_BITS = ["quantization_config.bnb_4bit_quant_type=nf4", "lora.r=4"]
REMEDY = "configs/accelerate/multi_gpu.yaml"


@pytest.fixture(params=KINDS)
def launch(request: pytest.FixtureRequest) -> Iterator[str]:
    """A launch that shards the model, by its file."""
    with use_launch(str(ACCELERATE / request.param)):
        yield request.param


@pytest.fixture(autouse=True)
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: Any, **__: Any) -> None:
        pytest.fail("weights were read")

    for place in ("mmrl.models.load_policy", "mmrl.models.loading.fill_network"):
        monkeypatch.setattr(place, load)
    for place in ("mmrl.objectives.masked.load_vq", "mmrl.objectives.masked.load_start"):
        monkeypatch.setattr(place, load)


def test_a_run_with_weights_of_4_bits_is_refused(
    world: SimpleNamespace, tmp_path: Path, launch: str
) -> None:
    config = run_config(world, tmp_path, lora=LORA)
    config.model.quantization_config = QuantizationConfig()
    with pytest.raises(ConfigError) as caught:
        check_run(config, 2)
    key = "model.quantization_config is 'given'; it must be null where distributed_type is"
    assert f"{key} {KINDS[launch]}" in str(caught.value) and REMEDY in str(caught.value)


def test_a_run_of_a_network_without_blocks_is_refused(
    world: SimpleNamespace, tmp_path: Path, launch: str
) -> None:
    pytest.importorskip("diffusers")
    config = run_config(world, tmp_path)
    path = str(write_amused(tmp_path / "pipeline"))
    config.model = ModelConfig(path=path)
    config.tasks["shapes"].max_completion_length = None
    with pytest.raises(ConfigError) as caught:
        check_run(config, 2)
    said = str(caught.value)
    assert f"model.path is '{path}'; it must be one with blocks of the masked-token core" in said
    assert KINDS[launch] in said and "UVit has no block to shard" in said and REMEDY in said


@pytest.mark.parametrize("launch", KINDS)
def test_a_dry_run_refuses_what_the_planned_launch_cannot_shard(
    world: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str], launch: str
) -> None:
    words = [*command_line(world, tmp_path / "run"), *(f"model.{word}" for word in FOUR_BITS)]
    words += ["dry_run=true", f"launch_config={ACCELERATE / launch}"]
    assert rl.main(words) == 1
    assert "model.quantization_config is 'given'" in capsys.readouterr().err


@pytest.mark.parametrize("dry", [True, False])
def test_supervised_training_of_weights_of_4_bits_is_refused(
    world: SimpleNamespace,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    launch: str,
    dry: bool,
) -> None:
    words = ["objective.name=masked", "objective.data=none", f"objective.model={world.policy}"]
    words += [*(f"objective.{word}" for word in FOUR_BITS), "objective.vq=none"]
    assert sft.main([*words, f"output_dir={tmp_path / 'run'}", f"dry_run={dry}"]) == 1
    said = capsys.readouterr().err
    assert "objective.quantization_config is 'given'; it must be null" in said
    assert KINDS[launch] in said and REMEDY in said


def test_supervised_training_of_a_policy_without_blocks_is_refused(
    tmp_path: Path, launch: str
) -> None:
    pytest.importorskip("diffusers")
    options = StartConfig(model=str(write_amused(tmp_path / "pipeline")))
    with pytest.raises(ConfigError, match=f"objective.model is .*UVit has no block.*{REMEDY}"):
        outline_policy(options, LayoutConfig())


def test_a_dry_run_refuses_an_image_tokenizer_that_would_be_sharded(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], launch: str
) -> None:
    config = supervised_runs.config(images, tmp_path / "run", dry_run=True)
    (tmp_path / "plan.yaml").write_text(to_yaml(config))
    assert sft.main([f"config={tmp_path / 'plan.yaml'}"]) == 1
    assert "objective.name is 'scripts.miniature:VQ'; it must be" in capsys.readouterr().err


def test_where_every_process_has_the_whole_model_nothing_is_refused(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    config = run_config(world, tmp_path, lora=LORA)
    config.model.quantization_config = QuantizationConfig()
    with use_launch(str(ACCELERATE / "cpu2.yaml")):
        check_run(config, 2)
