"""What of a DeepSpeed launch configuration is refused, before any weight is read."""

import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from accelerate.commands.launch import launch_command_parser
from accelerate.utils.launch import prepare_deepspeed_cmd_env

from mmrl.config import ConfigError
from mmrl.objectives import text
from mmrl.objectives.text_config import CompletionConfig
from mmrl.planning.run_checks import check_run
from mmrl.runtime.launch import check_launch
from tests.mmrl import sharded_sight
from tests.mmrl.runs import ACCELERATE, run_config

KEYS = {
    "zero_stage": "ACCELERATE_DEEPSPEED_ZERO_STAGE",
    "offload_optimizer_device": "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
    "offload_param_device": "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE",
    "zero3_init_flag": "ACCELERATE_DEEPSPEED_ZERO3_INIT",
}
FILES = ["zero2.yaml", "zero3.yaml", "zero3_offload.yaml", "zero2_cpu2.yaml", "zero3_cpu2.yaml"]


def launch(monkeypatch: pytest.MonkeyPatch, name: str = "zero3.yaml", **changes: str) -> None:
    """Set the variables that accelerate sets for a file of `configs/accelerate`."""
    settings = yaml.safe_load((ACCELERATE / name).read_text())["deepspeed_config"]
    variables = {KEYS[key]: str(value).lower() for key, value in settings.items()}
    for variable in (*KEYS.values(), "ACCELERATE_DEEPSPEED_CONFIG_FILE"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in {"ACCELERATE_USE_DEEPSPEED": "true", **variables, **changes}.items():
        monkeypatch.setenv(variable, value)


@pytest.mark.parametrize("name", FILES)
def test_every_configuration_that_is_shipped_is_followed(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    launch(monkeypatch, name)
    check_launch("adamw")
    check_launch("sgd")


def test_accelerate_passes_on_the_keys_that_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accelerate.utils.launch.is_port_in_use", lambda _: False)
    words = ["--use_deepspeed", "--mixed_precision", "no", "--num_processes", "2"]
    given = {"zero_stage": "3", "zero3_init_flag": "true", "gradient_clipping": "0.5"}
    given |= {"offload_optimizer_device": "cpu", "offload_param_device": "cpu"}
    for key, value in given.items():
        words += [f"--{key}", value]
    arguments: Any = launch_command_parser().parse_args([*words, "script.py"])
    arguments.deepspeed_fields_from_accelerate_config = ""
    arguments.num_machines = 1
    _, environment = prepare_deepspeed_cmd_env(arguments)
    assert {key: environment[variable] for key, variable in KEYS.items()} == {
        key: given[key] for key in KEYS
    }
    assert environment["ACCELERATE_GRADIENT_CLIPPING"] == "0.5"


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        (KEYS["zero_stage"], "1", ["zero_stage is '1'", "2 or 3"]),
        (KEYS["zero3_init_flag"], "true", ["zero3_init_flag is 'true'", "false", "rewards"]),
        (KEYS["offload_optimizer_device"], "nvme", ["offload_optimizer_device is 'nvme'", "cpu"]),
        (KEYS["offload_param_device"], "cpu", ["offload_param_device is 'cpu'", "none"]),
        ("ACCELERATE_GRADIENT_CLIPPING", "1.0", ["gradient_clipping is '1.0'", "max_grad_norm"]),
        (
            "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
            "4",
            ["gradient_accumulation_steps is '4'", "per_device_train_batch_size"],
        ),
        ("ACCELERATE_MIXED_PRECISION", "bf16", ["mixed_precision is 'bf16'", "bf16=true"]),
        (
            "ACCELERATE_DEEPSPEED_CONFIG_FILE",
            "ds.json",
            ["deepspeed_config_file is 'ds.json'", "zero_stage"],
        ),
    ],
)
def test_keys_that_a_run_does_not_follow_are_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, named: list[str]
) -> None:
    launch(monkeypatch, **{variable: value})
    with pytest.raises(ConfigError) as caught:
        check_launch("adamw")
    assert all(part in str(caught.value) for part in named), caught.value


def test_stage_2_moves_nothing_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    launch(monkeypatch, "zero2.yaml", **{KEYS["offload_optimizer_device"]: "cpu"})
    with pytest.raises(ConfigError, match="offload_optimizer_device is 'cpu'.*zero_stage 2"):
        check_launch("adamw")


@pytest.mark.parametrize("optimizer", ["muon", "adamw_8bit"])
def test_other_optimisers_are_refused(monkeypatch: pytest.MonkeyPatch, optimizer: str) -> None:
    launch(monkeypatch)
    with pytest.raises(ConfigError, match=f"optimizer is '{optimizer}'.*adamw or sgd"):
        check_launch(optimizer)


def test_compiled_blocks_are_refused_where_weights_are_sharded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launch(monkeypatch)
    with pytest.raises(ConfigError, match="torch_compile is True.*zero_stage 3"):
        check_launch("adamw", torch_compile=True)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    launch(monkeypatch)
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "deepspeed" else found(name)
    )
    with pytest.raises(ConfigError, match=r"pip install -e '\.\[deepspeed\]'"):
        check_launch("adamw")


def test_a_value_model_that_is_a_copy_is_refused_before_prompts_are_read(
    world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(monkeypatch)
    algorithm = {"name": "trace_rl", "slice_size": 1, "value": {}}
    config = run_config(world, world.policy, algorithm=algorithm)
    with pytest.raises(ConfigError, match="value is 'given'.*fsdp2.yaml"):
        check_run(config)


@pytest.mark.parametrize(
    ("stage", "processes", "trained", "refused"),
    [("2", 2, True, True), ("2", 2, False, False), ("3", 2, False, True), ("3", 1, True, False)],
)
def test_images_in_some_rows_alone_are_refused_where_processes_would_not_agree(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
    processes: int,
    trained: bool,
    refused: bool,
) -> None:
    launch(monkeypatch, f"zero{stage}.yaml", WORLD_SIZE=str(processes))
    sharded_sight.write(tmp_path)
    for rows in ("mixed", "sight"):
        place = {"model": str(tmp_path / "policy"), "data": str(tmp_path / f"{rows}.jsonl")}
        tuned = {"modules_to_train": ["vision.projector" if trained else "blocks.0"]}
        config = CompletionConfig(**place, **tuned, max_length=500)
        monkeypatch.setattr(text, "load_start", load_nothing)
        caught = pytest.raises(ConfigError if refused and rows == "mixed" else Loaded)
        with caught as error:
            text.Completions(config, 0, 1)
        if error.type is ConfigError:
            assert "mixed.jsonl'; it must be rows that all have images" in str(error.value)


class Loaded(Exception):
    """A model would be loaded."""


def load_nothing(*_: object) -> None:
    raise Loaded


def test_the_settings_for_gpus_are_those_of_two_cpu_processes() -> None:
    for stage in (2, 3):
        gpu, cpu = (
            yaml.safe_load((ACCELERATE / f"zero{stage}{end}.yaml").read_text())
            for end in ("", "_cpu2")
        )
        assert gpu["deepspeed_config"] == cpu["deepspeed_config"]
        assert gpu["mixed_precision"] == cpu["mixed_precision"] == "no"
    assert "ACCELERATE_USE_DEEPSPEED" not in os.environ
