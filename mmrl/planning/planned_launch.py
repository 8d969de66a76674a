"""Planning for another launch: the environment variables of an accelerate configuration."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from mmrl.config import ConfigError, check
from mmrl.planning.plan_page import Plan
from mmrl.runtime.devices import read_devices
from mmrl.runtime.launch import use_device
from mmrl.runtime.placement import Placement, read_placement


@contextmanager
def use_launch(path: str | None, devices: str | None = None) -> Iterator[None]:
    """Set the environment variables inside the context that `accelerate launch --config_file PATH`
    would set, with a process for each of the devices; None sets nothing. Raises ConfigError: there
    is no such file, or accelerate does not accept it; or unknown devices."""
    before = dict(os.environ)
    try:
        if path is not None:
            os.environ.update(read_config_file(path))
        number = read_devices(devices)[0] if devices else None
        if number is not None:
            world, local = (int(os.environ.get(k, "1")) for k in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
            local = -(-number * local // world)  # as many machines as before
            os.environ.update(WORLD_SIZE=str(number), LOCAL_WORLD_SIZE=str(local))
        if devices:
            os.environ["ACCELERATE_USE_CPU"] = "false"
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def for_launch(describe: Callable[..., Plan]) -> Callable[..., Plan]:
    """Let a function plan for the `launch_config` and `devices` of its first argument."""

    @wraps(describe)
    def planned(config: Any, *arguments: Any, **named: Any) -> Plan:
        with use_launch(getattr(config, "launch_config", None), config.devices):
            return describe(config, *arguments, **named)

    return planned


def plan_placement(config: Any, world_size: int) -> Placement:
    """The placement of a launch, on the `devices` of a configuration or else those found."""
    use_device(config.device)
    named = read_devices(config.devices)[1] if config.devices else None
    return read_placement(world_size=world_size, named=named)


def read_config_file(path: str) -> dict[str, str]:
    """The environment variables of a process that accelerate launches with a configuration file.
    Raises ConfigError: there is no such file, or accelerate does not accept it."""
    from accelerate.commands import launch
    from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

    allowed = "a file, such as configs/accelerate/fsdp2.yaml"
    check(Path(path).is_file(), "launch_config", path, allowed)
    try:
        words = ["--config_file", path, "--main_process_port", "0", "-m", "mmrl.rl"]
        parsed = launch.launch_command_parser().parse_args(words)
        arguments, *_ = launch._validate_launch_command(parsed)
        if arguments.use_deepspeed:
            arguments.deepspeed_fields_from_accelerate_config = ""  # set by the launcher's main
            _, variables = prepare_deepspeed_cmd_env(arguments)
        else:
            variables = prepare_multi_gpu_env(arguments)
    except (ValueError, TypeError, AttributeError, SystemExit) as error:
        said = f"launch_config is '{path}', which accelerate refuses: {error}"
        raise ConfigError(said) from error
    processes, machines = int(arguments.num_processes or 1), int(arguments.num_machines or 1)
    variables |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes // machines)}
    variables["ACCELERATE_USE_CPU"] = str(bool(arguments.cpu or arguments.use_cpu))
    variables.pop("CUDA_VISIBLE_DEVICES", None)  # the plan is made with the devices of this process
    return variables
