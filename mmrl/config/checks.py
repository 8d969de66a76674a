"""Checks of settings, and the errors they raise: key, value, what is allowed and what to do."""

import difflib
import importlib
import ipaddress
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

QUOTED = 300
"""Most characters of a value in a message."""
HUB_ID = "a name or owner/name of up to 96 ASCII letters, digits and single '-', '_' or '.'"


class ConfigError(ValueError):
    """A configuration that cannot be run; the message says what to change."""


class NotHereError(ConfigError):
    """Something of the Hugging Face hub that is neither on this machine nor could be fetched."""


def check(holds: bool, key: str, value: Any, allowed: str, advice: str = "") -> None:
    """Raise a `ConfigError` of the standard form unless `holds`."""
    if not holds:
        said = f"{key} is {shorten(repr(value))}; it must be {allowed}. {advice}"
        raise ConfigError(said.rstrip())


def check_choice(key: str, value: Any, allowed: Mapping[str, Any] | Sequence[Any]) -> None:
    """Raise a `ConfigError` naming the nearest choice unless `value` is one of `allowed`."""
    if isinstance(value, Hashable) and value in allowed:
        return
    names = sorted(map(str, allowed))
    hint = suggest(value, names)
    raise ConfigError(f"{key} is {shorten(repr(value))}; allowed: {', '.join(names)}.{hint}")


def shorten(text: str) -> str:
    """A text as a message quotes it: the beginning of a long one."""
    return text if len(text) <= QUOTED else f"{text[:QUOTED]}… ({len(text):,} characters)"


def suggest(word: Any, allowed: Mapping[str, str] | Sequence[str]) -> str:
    """The question whether the nearest of several words was meant; empty where none is near. A
    mapping says what is shown of each."""
    near = difflib.get_close_matches(str(word), list(allowed), n=1)
    shown = allowed if isinstance(allowed, Mapping) else {name: name for name in near}
    return f" Did you mean {shown[near[0]]!r}?" if near else ""


def import_extra(module: str, extra: str) -> Any:
    """Import a module that an extra of this package brings. Raises ConfigError: it is not here."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise ConfigError(
            f"The package {error.name} is not installed. It comes with the extra {extra}:"
            f" pip install 'mmrl[{extra}]', or in a clone pip install -e '.[{extra}]'."
        ) from error


def is_hub_id(text: str) -> bool:
    """Whether a text has the form of a repository of the Hugging Face hub, `owner/name`."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(text)
    except HFValidationError:
        return False
    return True


def is_cached(hub_id: str) -> bool:
    """Whether a repository of the Hugging Face hub, or a part of it, is in the local cache."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    folder = repo_folder_name(repo_id=hub_id, repo_type="model")
    return (Path(constants.HF_HUB_CACHE) / folder / "snapshots").is_dir()


def explain_absence(hub_id: str, error: Exception) -> str:
    """Why a repository of the hub is not here, and how to get it."""
    first: BaseException = error
    while cause := first.__cause__ or first.__context__:
        first = cause
    reason = (str(first).strip().splitlines() or [type(first).__name__])[0]
    return (
        f"{hub_id!r} is neither an existing directory nor in the local cache of the Hugging Face"
        f" hub, and could not be fetched ({reason}). With a connection, `hf download {hub_id}` puts"
        " it there; without one, copy its folder here and give the path."
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
