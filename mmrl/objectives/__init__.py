"""Objectives of supervised training, by the name used in configurations.

A built-in one is a file with its class, its options, and a line in `OBJECTIVES`. Any other
is named by its place, see `find_objective`.
"""

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, NamedTuple

from mmrl.config import build_options, check, check_choice
from mmrl.config.by_name import find, is_by_name
from mmrl.objectives.options import CompletionConfig, FlowConfig, MaskedConfig


class ObjectiveEntry(NamedTuple):
    """An objective: its options, and the name of its class (`module:name` or `file.py:name`), which
    is imported when it is needed."""

    Config: type[Any]
    path: str

    def load(self) -> type[Any]:
        """Import the class, see `mmrl.objectives.objective.Objective`. Raises ConfigError: there is
        no such class, or it lacks a method of an objective."""
        found = find(self.path, "objective.name")
        missing = [name for name in METHODS if not callable(getattr(found, name, None))]
        check(not missing, "objective.name", self.path, f"a class with {', '.join(METHODS)}")
        return found


METHODS = ("outline", "batch", "loss", "save", "evaluate")

OBJECTIVES = {
    "flow": ObjectiveEntry(FlowConfig, "mmrl.objectives.flow:Flow"),
    "masked": ObjectiveEntry(MaskedConfig, "mmrl.objectives.masked:Masked"),
    "text": ObjectiveEntry(CompletionConfig, "mmrl.objectives.text:Completions"),
}


def find_objective(section: Mapping[str, Any]) -> tuple[ObjectiveEntry, Any]:
    """Find the objective of a section `{name: …, option: …}` and build its options.

    The name is a key of `OBJECTIVES`; or `path/to/file.py:NAME` or `module:NAME`, where NAME is an
    `ObjectiveEntry`, or an objective class with a dataclass `Config`. Raises ConfigError: there is
    no such objective, or an option is unknown or impossible."""
    name: str = section.get("name", "")
    if is_by_name(name):
        entry = _as_entry(find(name, "objective.name"), name)
    else:
        check_choice("objective.name", name, OBJECTIVES)
        entry = OBJECTIVES[name]
    return entry, build_options({name: entry}, {**section, "name": name}, where="objective")


def _as_entry(found: Any, name: str) -> ObjectiveEntry:
    if isinstance(found, ObjectiveEntry):
        return found
    config = getattr(found, "Config", None)
    allowed = "the name of an ObjectiveEntry, or of an objective class with a dataclass Config"
    check(isinstance(found, type) and is_dataclass(config), "objective.name", name, allowed)
    return ObjectiveEntry(found.Config, name)
