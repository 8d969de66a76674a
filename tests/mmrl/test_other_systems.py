"""What a first run needs of a system: nothing that only Linux has."""

import os
import subprocess
import sys
from importlib.metadata import requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
RUN_LIKE_A_MAC = """
import os, platform, select, signal, sys
import accelerate, datasets, diffusers, matplotlib.pyplot, peft, psutil, torch, transformers

only = "sched_getaffinity sched_setaffinity unshare O_PATH O_TMPFILE memfd_create posix_fadvise"
for name in (only + " eventfd setns pidfd_open splice copy_file_range epoll SIGRTMIN").split():
    for module in (os, select, signal):
        vars(module).pop(name, None)
sys.platform, platform.system = "darwin", lambda: "Darwin"
from mmrl import rl
sys.exit(rl.main(sys.argv[1:]))
"""
KINDS = {"": "shapes", "_flow": "shapes", "_causal": "arithmetic"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_run_needs_nothing_that_only_linux_has(kind: str, tmp_path: Path) -> None:
    run, task = tmp_path / "run", "num_prompts: 2, num_generations: 2, rollout_batch_size: 4"
    words = [f"config=configs/rl/quickstart{kind}.yaml", f"output_dir={run}", "max_steps=1"]
    words += [f"tasks.{KINDS[kind]}={{{task}, eval_limit: 2}}", "per_device_train_batch_size=4"]
    command = [sys.executable, "-c", RUN_LIKE_A_MAC, *words, "save_steps=0", "num_mini_batches=1"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (run / "report.html").is_file() and (run / "final").is_dir()


def needed_on_a_mac(name: str, found: set[str]) -> set[str]:
    """A package with all that it needs on Apple silicon, by the metadata of what is installed."""
    for each in map(Requirement, requires(name) or ()):
        known = {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64"}
        if each.name not in found and (each.marker is None or each.marker.evaluate(known)):
            found.add(each.name)
            needed_on_a_mac(each.name, found)
    return found


@pytest.mark.network
def test_the_core_has_a_wheel_of_every_package_for_a_mac() -> None:
    names = [f"{name}=={version(name)}" for name in needed_on_a_mac("mmrl", set())]
    mac = ["--platform", "macosx_14_0_arm64", "--only-binary", ":all:", "--target", "x"]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "-q", *mac]
    done = subprocess.run([*command, *names], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0 and len(names) > 40, done.stderr
