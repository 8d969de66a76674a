"""Python objects by the name of their file or module, there and back."""

import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mmrl.config import ConfigError, to_plain, to_yaml
from mmrl.config.by_name import FROM_FILE, find, source_of, write_name

CODE = """
from dataclasses import dataclass

LOADED = []

def score(samples):
    return [1.0 for _ in samples]

@dataclass
class Scores:
    value: float = 0.5

    @classmethod
    def of(cls, samples):
        return [cls().value for _ in samples]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, with the file above in it."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "score.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_file_is_loaded_once_however_it_is_spelt(folder: Path) -> None:
    first = find("own/score.py:score", "name")
    for path in (folder / "own/score.py", "./own/../own/score.py", "own//score.py"):
        assert find(f"{path}:score", "name") is first
    (folder / "link.py").symlink_to(folder / "own" / "score.py")
    assert find("link.py:score", "name") is first
    assert find("own/score.py:Scores.of", "name")([1]) == [0.5]
    assert len([name for name in sys.modules if name.startswith(f"{FROM_FILE}score_")]) == 1


def test_a_file_that_was_imported_is_not_loaded_again(folder: Path) -> None:
    score = find("own.score:score", "name")
    assert find("own/score.py:score", "name") is score
    assert find(f"{__file__}:CODE", "name") is CODE


def test_names_are_written_as_they_are_found(folder: Path) -> None:
    for name in ("own/score.py:score", "own/score.py:Scores", "json:dumps", "pathlib:Path"):
        assert find(write_name(find(name, "name")), "name") is find(name, "name")
    assert write_name(find("own/score.py:score", "name")) == "own/score.py:score"
    assert write_name(folder.joinpath) == "pathlib:PurePath.joinpath object"
    assert source_of(find("own/score.py:Scores", "name")) == CODE.encode()


@dataclass
class Config:
    rewards: list[Any] = field(default_factory=list)
    steps: int = 3


class Counts:
    def __init__(self) -> None:
        self.lock = sys.stdout  # nothing that could be copied

    def __call__(self, samples: list[Any]) -> list[float]:
        return [float(len(samples))]


def test_a_configuration_is_written_by_names_and_without_addresses() -> None:
    def inner() -> None: ...

    values = [find, Counts, Counts(), lambda: 1, inner, functools.partial(find), Counts().__call__]
    entries = [{"name": "n", "reward": value, "weight": 2} for value in values]
    text = to_yaml(Config(entries))
    assert "0x" not in text
    written = [entry["reward"] for entry in to_plain(Config(entries))["rewards"]]
    here = __name__
    assert written[:4] == [
        "mmrl.config.by_name:find",
        f"{here}:Counts",
        f"{here}:Counts object",
    ] + [f"{here}:test_a_configuration_is_written_by_names_and_without_addresses.<locals>.<lambda>"]
    for name in written[2:]:
        with pytest.raises(
            ConfigError, match=r"rewards\[0\].name is .*given from Python.*found by"
        ):
            find(name, "rewards[0].name")


BROKEN = {
    "own/none.py:score": "there is no file 'own/none.py'. Paths are relative to the current",
    "own/score.py:scor": "has no 'scor'. Did you mean 'score'? It has dataclass, score, Scores.",
    "own/bad.py:f": "it cannot be loaded: bad.py, line 3: ZeroDivisionError: division by zero",
    "own/typo.py:f": "it cannot be loaded: SyntaxError: invalid syntax (typo.py, line 2)",
    "nowhere.at.all:f": "there is no module 'nowhere'; a file is named",
    "own.bad:f": "it cannot be loaded: bad.py, line 3: ZeroDivisionError",
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_not_found_or_cannot_be_loaded_says_why(folder: Path, name: str) -> None:
    (folder / "own" / "bad.py").write_text("x = 1\n\ny = x / 0\n")
    (folder / "own" / "typo.py").write_text("x = 1\ndef f(:\n")
    for _ in range(2):  # nothing is left behind that a second try would take for the module
        with pytest.raises(ConfigError) as error:
            find(name, "rewards[0].name")
        assert f"rewards[0].name is {name!r}: " in str(error.value)
        assert BROKEN[name] in str(error.value)
