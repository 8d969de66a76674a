"""Presets resolved to whole rows, which `config.yaml` of a run holds.

A preset is read once, when a configuration is loaded. A resumed run starts from the row that it
wrote instead, so it does not change with the preset's file. What the command itself states about
the row, by its words or its YAML, comes before either; another name starts from that preset.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from mmrl.algorithms.presets import DEFAULT_PRESET, load_algorithm, write_row
from mmrl.config import ConfigError, to_plain


def resolve_row(
    options: Mapping[str, Any], where: str, written: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Every column of a row, as plain options.

    Args:
        options: the preset's name and what is stated beside it.
        where: dotted key of the section, for messages.
        written: the row that the run wrote when it began, if it is resumed.

    Raises:
        ConfigError: an unknown preset, option or column value.
    """
    stated: Any = to_plain(options)
    if written is not None and _name(written) == _name(stated):
        stated = OmegaConf.to_container(OmegaConf.merge(dict(written), stated))
    return write_row(load_algorithm(stated, where), where)


def read_rows(file: Path) -> dict[str, Mapping[str, Any]]:
    """The rows by task in `config.yaml` of a run; none where there is no such file.

    Raises:
        ConfigError: it cannot be read.
    """
    if not file.is_file():
        return {}
    try:
        tasks: Any = to_plain(OmegaConf.to_container(OmegaConf.load(file))).get("tasks") or {}
        return {name: task["algorithm"] for name, task in tasks.items() if "algorithm" in task}
    except (OSError, YAMLError, OmegaConfBaseException, AttributeError, TypeError) as error:
        raise ConfigError(
            f"'{file}' cannot be read ({error}), so the run cannot be resumed with the algorithms"
            " it began with. Restore it, or remove it to take today's presets."
        ) from error


def _name(options: Mapping[str, Any]) -> Any:
    return options.get("name", DEFAULT_PRESET)
