"""A YAML may start from another one and states only what differs."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from mmrl.config import ConfigError, load_config
from mmrl.config.inputs import load_ready
from mmrl.config.yaml_file import find_chain, read_yaml
from mmrl.sft_config import SFTConfig


@dataclass
class Run:
    """Settings with one input."""

    rows: str = ""


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


def test_sections_are_merged_and_lists_replaced(tmp_path: Path) -> None:
    write(
        tmp_path,
        base="steps: 5\nmodel: {path: a, lora: {r: 8}}\nrewards: [{name: clip}, {name: hps}]\n",
        middle="config: base.yaml\nmodel: {path: b}\n",
        top="config: middle.yaml\nrewards: [{name: geneval}]\nsteps: 6\n",
    )
    found = OmegaConf.to_container(read_yaml(str(tmp_path / "top.yaml")))
    assert found == {
        "steps": 6,
        "model": {"path": "b", "lora": {"r": 8}},
        "rewards": [{"name": "geneval"}],
    }
    names = [path.name for path in find_chain(str(tmp_path / "top.yaml"))]
    assert names == ["top.yaml", "middle.yaml", "base.yaml"]


def test_a_file_elsewhere_starts_from_a_shipped_one(tmp_path: Path) -> None:
    write(tmp_path, mine="config: configs/sft/llada_8b.yaml\nlearning_rate: 1e-6\n")
    own = load_config(SFTConfig, [f"config={tmp_path / 'mine.yaml'}"])
    shipped = load_config(SFTConfig, ["config=configs/sft/llada_8b.yaml", "learning_rate=1e-6"])
    assert own == shipped


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("config: other.yaml\n", "starts from itself"),
        ("config: nowhere.yaml\n", "config=nowhere.yaml: there is no such file"),
        ("config: [a]\n", "must be the path of a YAML"),
        ("config: ''\n", "must be the path of a YAML"),
    ],
)
def test_what_a_file_starts_from_is_checked(tmp_path: Path, text: str, said: str) -> None:
    write(tmp_path, run=text, other="config: run.yaml\n")
    with pytest.raises(ConfigError, match=said):
        read_yaml(str(tmp_path / "run.yaml"))


def test_the_command_that_writes_an_input_is_found_in_the_file_that_names_it(
    tmp_path: Path,
) -> None:
    write(
        tmp_path,
        base=f"# Base.\n#   python write.py out={tmp_path / 'data'}\n"
        f"rows: {tmp_path / 'data' / 'rows.parquet'}\n",
        run="config: base.yaml\n",
    )
    with pytest.raises(ConfigError, match=r"Write it first:\n  python write\.py"):
        load_ready(Run, [f"config={tmp_path / 'run.yaml'}"])
