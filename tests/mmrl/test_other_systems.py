"""What a first run needs of a system: nothing that only Linux has."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIKE_A_MAC = """
import os, platform, select, signal, sys
import accelerate, datasets, diffusers, matplotlib.pyplot, peft, psutil, torch, transformers

for module, names in {
    os: "sched_getaffinity sched_setaffinity unshare O_PATH O_TMPFILE memfd_create posix_fadvise"
    " eventfd setns pidfd_open splice copy_file_range",
    select: "epoll EPOLLIN",
    signal: "SIGRTMIN SIGRTMAX SIGPWR",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
sys.platform, platform.system = "darwin", lambda: "Darwin"
"""
RUN = """
from mmrl import rl

small = "num_prompts=2 num_generations=2 rollout_batch_size=4 eval_limit=2 sampler.steps=2"
words = [f"tasks.{sys.argv[2]}.{word}" for word in small.split() if "sampler" not in word]
rl.main([f"config={sys.argv[1]}", f"output_dir={sys.argv[3]}", "max_steps=1", "save_steps=0",
         "eval_steps=1", "per_device_train_batch_size=4", *words])
"""
KINDS = {"": "shapes", "_flow": "shapes", "_causal": "arithmetic"}


def run_like_a_mac(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LIKE_A_MAC + code, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_run_needs_nothing_that_only_linux_has(kind: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = [f"configs/rl/quickstart{kind}.yaml", KINDS[kind], str(run)]
    done = run_like_a_mac(RUN, *words)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (run / "report.html").is_file() and (run / "final").is_dir()


@pytest.mark.network
def test_the_core_has_a_wheel_of_every_package_for_a_mac(tmp_path: Path) -> None:
    project = (ROOT / "pyproject.toml").read_text().split("dependencies = [")[1].split("]")[0]
    core = [line.strip(' ",') for line in project.splitlines() if line.strip()]
    mac = ["--platform", "macosx_14_0_arm64", "--python-version", "3.12", "--only-binary", ":all:"]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--target", "x"]
    done = subprocess.run([*command, *mac, *core], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
