"""What `pip install .` puts in place, and what of it is found far from any checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("models", "rewards", "eval", "configs")
"""Linked inside `mmrl`."""
SOURCES = ("mmrl", *FOLDERS, "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel of a source distribution, as `python -m build` makes both; of a copy, because
    setuptools leaves its work beside the sources."""
    copy = tmp_path_factory.mktemp("copy")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, symlinks=True)
        else:
            shutil.copy(ROOT / name, copy / name)
    pack = "from setuptools import build_meta; build_meta.build_sdist('.')"
    subprocess.run([sys.executable, "-c", pack], cwd=copy, check=True, stdout=subprocess.DEVNULL)
    [packed] = copy.glob("*.tar.gz")
    command = [sys.executable, "-m", "pip", "wheel", packed.name, "--no-deps", "-w", "."]
    command.append("--no-build-isolation")
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [path] = copy.glob("*.whl")
    return zipfile.ZipFile(path)


def test_a_wheel_holds_every_module_and_config_and_claims_one_name(wheel: zipfile.ZipFile) -> None:
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    walk = os.walk(ROOT / "mmrl", followlinks=True)
    files = {Path(folder, name).relative_to(ROOT) for folder, _, names in walk for name in names}
    assert held == {path.as_posix() for path in files if path.suffix in {".py", ".yaml", ".j2"}}
    assert {name.partition("/")[0] for name in held} == {"mmrl"}


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


def test_files_of_the_user_may_have_the_names_of_our_folders(tmp_path: Path) -> None:
    for name in ("rewards.py", "eval.py", "models/__init__.py", "configs/__init__.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("raise RuntimeError('a file of the user')")
    done = subprocess.run(
        [sys.executable, "-m", "mmrl.rl", "config=configs/rl/llada_gsm8k.yaml", "dry_run=true"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_a_second_clone_runs_its_own_code(tmp_path: Path) -> None:
    for name in ("mmrl", *FOLDERS):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True)
    names = ("mmrl.randomness", "mmrl.models.policy", "mmrl.rewards.math")
    names += ("mmrl.evaluation.results",)
    imports = "; ".join(f"import {name}; print({name}.__file__)" for name in names)
    done = subprocess.run(
        [sys.executable, "-c", imports], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    files = [str(tmp_path.joinpath(*name.split("."))) + ".py" for name in names]
    assert done.stdout.splitlines() == files
