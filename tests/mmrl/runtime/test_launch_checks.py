"""What of a launch configuration is refused, before any weight is read."""

import importlib.util
from pathlib import Path

import pytest
import yaml

from mmrl.config import ConfigError
from mmrl.objectives import text
from mmrl.objectives.options import CompletionConfig
from mmrl.planning.planned_launch import use_launch
from mmrl.runtime.launch_checks import check_launch
from tests.mmrl import sharded_sight
from tests.mmrl.runs import ACCELERATE

ZERO = "ACCELERATE_DEEPSPEED_"
MESH = {"ACCELERATE_USE_PARALLELISM_CONFIG": "true", "PARALLELISM_CONFIG_DP_REPLICATE_SIZE": "2"}
MESH |= {"PARALLELISM_CONFIG_DP_SHARD_SIZE": "4", "WORLD_SIZE": "6"}


@pytest.mark.parametrize(
    ("name", "variables", "named"),
    [
        ("fsdp2", {"FSDP_VERSION": "1"}, ["fsdp_version is '1'", "must be 2", "fsdp2.yaml"]),
        ("fsdp2", MESH, ["dp_replicate_size is 2", "dp_shard_size 4", "6 processes", "product"]),
        ("fsdp2", {"ACCELERATE_USE_MEGATRON_LM": "true"}, ["MEGATRON_LM", "FSDP or DEEPSPEED"]),
        ("zero3", {f"{ZERO}ZERO_STAGE": "1"}, ["zero_stage is '1'", "2 or 3"]),
        ("zero3", {f"{ZERO}ZERO3_INIT": "true"}, ["zero3_init_flag is 'true'", "rewards"]),
        ("zero3", {f"{ZERO}OFFLOAD_OPTIMIZER_DEVICE": "nvme"}, ["device nvme", "may be cpu"]),
    ],
)
def test_keys_that_a_run_does_not_follow_are_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, variables: dict[str, str], named: list[str]
) -> None:
    with use_launch(str(ACCELERATE / f"{name}.yaml")), monkeypatch.context() as patch:
        for variable, value in variables.items():
            patch.setenv(variable, value)
        with pytest.raises(ConfigError) as caught:
            check_launch()
    assert all(part in str(caught.value) for part in named), caught.value


@pytest.mark.parametrize("name", ["fsdp2", "zero2"])
@pytest.mark.parametrize("optimizer", ["muon", "adamw_8bit"])
def test_other_optimisers_are_refused_where_the_model_is_sharded(name: str, optimizer: str) -> None:
    with (
        use_launch(str(ACCELERATE / f"{name}.yaml")),
        pytest.raises(ConfigError, match=f"optimizer is '{optimizer}'.*adamw or sgd"),
    ):
        check_launch(optimizer)


def test_what_zero3_lacks_and_a_missing_package_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    with use_launch(str(ACCELERATE / "zero3.yaml")):
        with pytest.raises(ConfigError, match="torch_compile is True.*zero_stage 3"):
            check_launch(torch_compile=True)
        monkeypatch.setattr(
            "importlib.util.find_spec", lambda name: None if name == "deepspeed" else found(name)
        )
        with pytest.raises(ConfigError, match=r"pip install -e '\.\[deepspeed\]'"):
            check_launch()


class LoadedError(Exception):
    """A model would be loaded."""


@pytest.mark.parametrize(
    ("stage", "processes", "trained", "refused"),
    [(2, 2, True, True), (2, 2, False, False), (3, 2, False, True), (3, 1, True, False)],
)
def test_images_in_some_rows_alone_are_refused_where_processes_would_not_agree(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stage: int,
    processes: int,
    trained: bool,
    refused: bool,
) -> None:
    def load_nothing(*_: object) -> None:
        raise LoadedError

    monkeypatch.setattr(text.Completions, "load_start", load_nothing)
    sharded_sight.write(tmp_path)
    for rows in ("mixed", "sight"):
        place = {"model": str(tmp_path / "policy"), "data": str(tmp_path / f"{rows}.jsonl")}
        tuned = {"modules_to_train": ["vision.projector" if trained else "blocks.0"]}
        config = CompletionConfig(**place, **tuned, max_length=500)
        expected = ConfigError if refused and rows == "mixed" else LoadedError
        launch = use_launch(str(ACCELERATE / f"zero{stage}.yaml"))
        with launch, monkeypatch.context() as patch:
            patch.setenv("WORLD_SIZE", str(processes))
            with pytest.raises(expected):
                text.Completions(config, 0, 1)


@pytest.mark.parametrize("way", ["fsdp2", "zero2", "zero3"])
def test_the_settings_for_gpus_are_those_of_two_cpu_processes(way: str) -> None:
    gpu, cpu = (
        yaml.safe_load((ACCELERATE / f"{way}{end}.yaml").read_text()) for end in ("", "_cpu2")
    )
    for key in ("fsdp_config", "deepspeed_config", "mixed_precision"):
        assert gpu.get(key) == cpu.get(key)
