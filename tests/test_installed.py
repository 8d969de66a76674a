"""What `pip install .` puts in place, and what of it is found far from any checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("mmrl", "models", "rewards", "eval")
SOURCES = (*PACKAGES, "configs", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel, built from a copy, because setuptools leaves its work beside the sources."""
    copy = tmp_path_factory.mktemp("copy")
    for name in SOURCES:
        take = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        take(ROOT / name, copy / name)
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*command, "-w", "."], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [path] = copy.glob("*.whl")
    return zipfile.ZipFile(path)


def test_a_wheel_holds_every_module_and_configuration_and_claims_four_names(
    wheel: zipfile.ZipFile,
) -> None:
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    modules = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    shipped = {f"mmrl/{path.relative_to(ROOT)}" for path in (ROOT / "configs").rglob("*.yaml")}
    assert held == modules | shipped


@pytest.mark.slow
def test_an_installed_package_finds_its_runs_and_says_what_only_the_repository_has(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", "site"]
    subprocess.run([*command, str(wheel.filename)], cwd=tmp_path, check=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            [sys.executable, "-m", *words, "dry_run=true"],
            cwd=elsewhere,
            env=environment,
            capture_output=True,
            text=True,
        )

    planned = run("mmrl.rl", "config=configs/rl/llada_gsm8k.yaml")
    assert planned.returncode == 0, planned.stderr
    assert "algorithm   diffu_grpo" in planned.stdout
    refused = run("mmrl.rl", "config=configs/rl/quickstart.yaml")
    assert refused.returncode == 1
    assert "model.path is 'datasets/shapes/checkpoints/mmada_careless'" in refused.stderr
    assert "comes with the repository" in refused.stderr and "in a clone" in refused.stderr
    assert not list(elsewhere.iterdir())
