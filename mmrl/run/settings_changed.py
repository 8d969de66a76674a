"""Settings in which a resumed run differs from the run that wrote its checkpoint."""

import fnmatch
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from mmrl.algorithms.presets import resolve_method
from mmrl.config import ConfigError, to_plain
from mmrl.config.checks import shorten
from mmrl.config.settings import flatten

logger = logging.getLogger(__name__)

FREE = """
    output_dir max_steps stop_on* eval_* save_* async_save merge_adapter push_to_hub hub_*
    logging_steps log_completions* report_to dry_run device devices verbose deterministic
    launch_config profile* ddp_timeout resume_* report.* notes
    overlap_rewards offload bf16 tf32 torch_compile per_device_train_batch_size
    model.attn_implementation model.gradient_checkpointing tasks.*.diversity tasks.*.eval_*
    tasks.*.rollout_batch_size tasks.*.max_failures objective.eval_*
    objective.attn_implementation objective.gradient_checkpointing
    objective.encode_batch_size objective.keep_latents objective.encodings_dir
"""
"""Settings, with wildcards and apart by spaces, that do not change the course of a run."""
LOGGED = ("tasks.*.rewards",)
"""Settings that may change with a warning: a reward that failed is corrected."""


def dump_settings(config: Any) -> str:
    """The settings of a run as JSON, for its checkpoints."""
    return json.dumps(to_plain(config))


def check_unchanged(stored: Mapping[str, Any] | None, config: Any, allowed: bool) -> None:
    """Compare the settings of a checkpoint, as `dump_settings` wrote them, None without, with those
    of the run that goes on from it; if `allowed`, differences are only logged. Raises ConfigError:
    settings that shape the run differ, besides those that no longer exist."""
    if stored is None:
        return
    settings = stored, json.loads(dump_settings(config))
    old, new = (dict(flatten(each, lists=False)) for each in settings)
    before, now = ({_section(key) for key in keys} for keys in (old, new))
    # settings that the run of the checkpoint did not know yet had their defaults
    usual = list_usual(config).items()
    old = {key: value for key, value in usual if _section(key) in before and key in new} | old
    changed = [key for key in sorted(old | new) if old.get(key) != new.get(key)]
    changed = [key for key in changed if not _fits(key, FREE.split())]
    if not changed:
        return
    removed = [key for key in changed if key not in new and _section(key) in now]
    said = "; ".join(f"{key} was {old.get(key)!r} and is {new.get(key)!r}" for key in changed)
    said = shorten(said)
    if not (allowed or all(key in removed or _fits(key, LOGGED) for key in changed)):
        raise ConfigError(
            f"the checkpoint is of a run with other settings: {said}. Set them back, start anew in"
            " another output_dir, or allow it with resume_with_changes=true."
        )
    logger.warning("resumed with other settings: %s", said)


def list_changed(config: Any) -> dict[str, Any]:
    """The settings that differ from what is usual, by dotted key."""
    usual, plain = list_usual(config), flatten(to_plain(config), lists=False)
    return {key: value for key, value in plain if usual.get(key, MISSING) != value}


def list_usual(config: Any) -> dict[str, Any]:
    """The defaults of settings, or what the preset of their algorithm says, by dotted key."""
    usual = dict(_list_defaults(config))
    for name, task in getattr(config, "tasks", {}).items():
        where, row = f"tasks.{name}.algorithm", {"name": task.algorithm.get("name")}
        usual |= flatten(resolve_method(row, where), where, lists=False)
    return usual


def _list_defaults(section: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted key and default of each setting below a dataclass or a dictionary of them."""
    if isinstance(section, dict):
        for name, each in section.items():
            yield from _list_defaults(each, f"{prefix}{name}.")
    elif is_dataclass(section):
        for field in fields(section):
            if field.default is not MISSING:
                yield f"{prefix}{field.name}", field.default
            elif field.default_factory is not MISSING:
                default = field.default_factory()
                yield from [] if is_dataclass(default) else [(f"{prefix}{field.name}", default)]
            yield from _list_defaults(getattr(section, field.name), f"{prefix}{field.name}.")


def _section(key: str) -> str:
    return key.rpartition(".")[0]


def _fits(key: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(key, pattern) for pattern in patterns)
