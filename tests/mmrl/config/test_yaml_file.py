"""A YAML may start from another one and states only what differs."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from mmrl.config import ConfigError
from mmrl.config.yaml_file import find_chain, read_yaml


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
    model = {"path": "b", "lora": {"r": 8}}
    assert found == {"steps": 6, "model": model, "rewards": [{"name": "geneval"}]}
    names = [path.name for path in find_chain(str(tmp_path / "top.yaml"))]
    assert names == ["top.yaml", "middle.yaml", "base.yaml"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("config: other.yaml\n", "starts from itself"),
        ("config: nowhere.yaml\n", "config=nowhere.yaml: there is no such file"),
        ("config: [a]\n", "must be the path of a YAML"),
    ],
)
def test_what_a_file_starts_from_is_checked(tmp_path: Path, text: str, said: str) -> None:
    write(tmp_path, run=text, other="config: run.yaml\n")
    with pytest.raises(ConfigError, match=said):
        read_yaml(str(tmp_path / "run.yaml"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"root:x:0:0:root\n" * 200, "must hold `key: value` lines"),
        (b"5", "must hold `key: value` lines"),
        (bytes(range(256)) * 20, "is not readable as YAML"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused_in_a_few_words(
    tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ConfigError, match=said) as caught:
        read_yaml(str(tmp_path / "file"))
    assert len(str(caught.value)) < 300
