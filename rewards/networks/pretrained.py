"""Loads networks and processors of transformers by directory or hub id, only if complete."""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from mmrl.config import ConfigError, NotHereError
from mmrl.config.checks import explain_absence, is_cached, is_hub_id


def load_network(cls: Any, name: str, key: str) -> Any:
    """A network in float32 with every weight from its checkpoint.

    Args:
        cls: has `from_pretrained`.
        name: directory or hub id.
        key: configuration key, for messages.

    Raises:
        ConfigError: no such checkpoint, one of another kind, or one with weights missing (which
            transformers alone would draw at random, with a warning); NotHereError for a hub id
            that is neither here nor can be downloaded.
    """
    network, report = load_part(cls, name, key, dtype="float32", output_loading_info=True)
    missing, misshapen = sorted(report["missing_keys"]), report["mismatched_keys"]
    if missing or misshapen:
        raise ConfigError(
            f"{key} {name!r} does not have all weights of a {type(network).__name__}: missing"
            f" {missing[:5]}, of another shape {list(misshapen)[:5]}. Check that the checkpoint is"
            " complete and of this kind."
        )
    return network


def load_part(cls: Any, name: str, key: str, **options: Any) -> Any:
    """`cls.from_pretrained(name)`, with the errors of `load_network`."""
    path = Path(name).expanduser()
    try:
        return cls.from_pretrained(str(path) if path.is_dir() else name, **options)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        if is_hub_id(name) and not path.exists() and not is_cached(name):
            raise NotHereError(f"{key}: {explain_absence(name, error)}") from None
        raise ConfigError(
            f"{key} is {name!r}, from which no {cls.__name__} can be loaded: {error}. Give a"
            " complete directory, or a hub id that is cached or can be downloaded."
        ) from error
