"""Runs on a Ray cluster of two nodes of this machine: `make test-engines`."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ |= {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "OMP_NUM_THREADS": "1"}
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 100 * 2**20, "num_gpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, **small})
    cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)
    yield cluster.address
    cluster.shutdown()


def launched(
    folder: Path, address: str, settings: str, *words: str
) -> subprocess.CompletedProcess[str]:
    path = folder / "launch.yaml"
    common = f"address: {address}\ngpus: 0\naccelerate: configs/accelerate/cpu2.yaml\n"
    path.write_text(common + settings)
    command = [sys.executable, "scripts/launch_ray.py", f"launch={path}", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)


def test_two_processes_and_an_engine_are_the_run_of_one_process(
    tmp_path: Path, address: str
) -> None:
    from mmrl import rl
    from tests.mmrl.engines.served import words, write_start
    from tests.mmrl.same_runs import close, same_rollouts

    start = write_start(tmp_path / "start")
    server = f"{sys.executable} -m mmrl.engines.server model={start} dtype=float64 device=cpu"
    settings = "processes: 2\nservers:\n  engine:\n    command: " + (
        f"{server} host={{host}} port={{port}} token_env=MMRL_TOKEN\n"
    )
    given = words(start, tmp_path / "two", engine="'{engine}'", token_env="MMRL_TOKEN")
    found = launched(tmp_path, address, settings, *given)
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-4000:]
    assert rl.main(words(start, tmp_path / "one")) == 0
    same_rollouts(tmp_path / "one", tmp_path / "two", 3)
    close(tmp_path / "one" / "final", tmp_path / "two" / "final")


def test_one_failure_ends_all_with_its_message(tmp_path: Path, address: str) -> None:
    found = launched(tmp_path, address, "processes: 2\n", "config=configs/rl/nowhere.yaml")
    assert found.returncode == 1
    assert "ended with status 1, and so do all others" in found.stderr
    assert "nowhere.yaml" in found.stderr


def test_more_bundles_than_the_cluster_has_are_refused(tmp_path: Path, address: str) -> None:
    found = launched(tmp_path, address, "processes: 9\n", "config=x.yaml")
    assert found.returncode == 1
    assert "CPUs of all bundles is 9" in found.stderr
