"""Processes that run different code are refused."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mmrl.config import ConfigError
from mmrl.runtime import same_code
from mmrl.runtime.same_code import check_same_code, describe_code

TWO: Any = SimpleNamespace(num_processes=2)


def answer_of(monkeypatch: pytest.MonkeyPatch, other: dict[str, str]) -> None:
    """Let a second process on another host answer with its description."""

    def gather(mine: list) -> list:
        return [*mine, other if isinstance(mine[0], dict) else "node2"]

    monkeypatch.setattr(same_code, "gather_object", gather)


def test_nodes_with_other_sources_or_packages_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = describe_code()
    answer_of(monkeypatch, own)
    check_same_code(TWO)
    for key in ("the source of mmrl", "the version of torch"):
        answer_of(monkeypatch, {**own, key: "another"})
        with pytest.raises(ConfigError, match=f"{key} is another in process 1 on node2") as error:
            check_same_code(TWO)
        assert own[key] in str(error.value) and "constraints.txt" in str(error.value)


def test_the_description_changes_with_any_source_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package, linked = tmp_path / "package", tmp_path / "linked"
    package.mkdir()
    linked.mkdir()
    (package / "linked").symlink_to(linked)
    monkeypatch.setattr(same_code, "SOURCES", package)
    seen = [describe_code()]
    assert describe_code() == seen[0]
    for file in (package / "more.py", linked / "inside.py"):
        file.write_text("")
        seen.append(describe_code())
    assert len({each["the source of mmrl"] for each in seen}) == 3
