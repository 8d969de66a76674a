"""Launch configurations for GPUs in a form for the processes of this machine."""

from pathlib import Path

import yaml

FILES = Path(__file__).resolve().parents[2] / "configs/accelerate"


def write_launch_form(name: str, processes: int, folder: Path, on_cpu: bool = True) -> Path:
    """Write a file of `configs/accelerate` for some processes, otherwise as it is.

    Two groups share a copy each where a file has groups.

    Args:
        name: of the file.
        processes: of all nodes.
        folder: where the new file goes.
        on_cpu: whether the processes are on the CPU.
    """
    settings = yaml.safe_load((FILES / name).read_text()) | {"num_processes": processes}
    if on_cpu:
        settings["use_cpu"] = True
        settings["gpu_ids"] = ",".join(["-1"] * max(2, processes // settings["num_machines"]))
    if "parallelism_config" in settings:
        sizes = {"dp_replicate_size": 2, "dp_shard_size": processes // 2}
        settings["parallelism_config"] = {f"parallelism_config_{k}": n for k, n in sizes.items()}
    path = folder / f"{Path(name).stem}_{processes}.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path
