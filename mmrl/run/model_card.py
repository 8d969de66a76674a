"""The model card, README.md, of what a run has trained."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub import ModelCardData, metadata_load
from yaml import YAMLError

from mmrl.config import to_plain
from mmrl.models.adapter_source import is_adapter
from mmrl.pretrained.known import known_config
from mmrl.run.checkpoint import ASIDE

PEFT, WHOLE = "peft", "transformers"


def write_card(folder: Path, settings: Any, metrics: Sequence[Mapping[str, Any]]) -> None:
    """Write the card of a trained policy beside it; nothing into a folder of anything else.

    Args:
        folder: of the model or the adapter.
        settings: of the run.
        metrics: lines of its `metrics.jsonl`.
    """
    if (folder / "tokenizer.json").is_file():
        plain = to_plain(settings)
        # a folder is written under another name, see `write_directory`
        place = plain.get("hub_model_id") or str(folder).removesuffix(ASIDE)
        config = known_config(str(folder)) or {}
        text = model_card(plain, metrics, is_adapter(folder), place, config)
        (folder / "README.md").write_text(text, encoding="utf-8")


def model_card(
    settings: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]],
    adapter: bool,
    place: str,
    config: Mapping[str, Any],
) -> str:
    """The text of a card.

    Args:
        settings: of a run of `mmrl.rl` or `mmrl.sft`, as plain values.
        metrics: lines of its `metrics.jsonl`.
        adapter: whether it is an adapter.
        place: path or hub id of the trained model.
        config: `config.json` of it or of its base.
    """
    base, license_name = _base(settings)
    kind = "reinforcement-learning" if "tasks" in settings else "sft"
    head = ModelCardData(
        base_model=base if base and not Path(base).expanduser().is_dir() else None,
        library_name=PEFT if adapter else WHOLE,
        license=license_name,
        tags=["mmrl", kind, "masked-diffusion", *(["lora"] if adapter else [])],
    )
    name = settings.get("hub_model_id") or Path(settings["output_dir"]).name
    lines = [
        f"---\n{head.to_yaml()}\n---",
        f"# {name}",
        f"{'A LoRA adapter of' if adapter else 'Trained from'} `{base}`"
        if base
        else "A new network",
        *(_reinforcement(settings) if "tasks" in settings else _supervised(settings)),
        _numbers(metrics),
        _loading(place, base, adapter, config),
    ]
    return "\n\n".join(line for line in lines if line) + "\n"


def _base(settings: Mapping[str, Any]) -> tuple[str, str | None]:
    """The model that was trained, and its licence where its own card is on this machine."""
    objective = settings.get("objective", {})
    base = settings["model"]["path"] if "model" in settings else objective.get("model", "")
    card = Path(base).expanduser() / "README.md"
    if not base or not card.is_file():
        return base, None
    try:
        found = (metadata_load(card) or {}).get("license")
    except (ValueError, YAMLError):  # a card without a readable head
        found = None
    return base, found if isinstance(found, str) else None


def _reinforcement(settings: Mapping[str, Any]) -> list[str]:
    lines = [f"Reinforcement learning by mmrl, {settings['max_steps']} steps at learning rate"]
    lines[0] += f" {settings['learning_rate']:g}."
    table = ["| task | algorithm | rewards |", "| --- | --- | --- |"]
    for name, task in settings["tasks"].items():
        algorithm = task["algorithm"].get("name", "") if task["algorithm"] else ""
        rewards = ", ".join(f"`{reward['name']}`" for reward in task["rewards"])
        table.append(f"| {name} ({task['task']}) | `{algorithm}` | {rewards} |")
    return [*lines, "\n".join(table)]


def _supervised(settings: Mapping[str, Any]) -> list[str]:
    name, data = settings["objective"].get("name"), settings["objective"].get("data")
    return [
        f"Supervised training by mmrl, {settings['max_steps']} steps at learning rate"
        f" {settings['learning_rate']:g}, objective `{name}`, data `{data}`."
    ]


def _numbers(metrics: Sequence[Mapping[str, Any]]) -> str:
    """The first and last value of each reward, evaluation and loss."""
    found: dict[str, list[float]] = {}
    for line in metrics:
        for key, value in line.items():
            shown = key.split("/")[-1] in ("reward", "loss") or key.startswith("eval/")
            if shown and isinstance(value, int | float) and key.count("/") < 3:
                found.setdefault(key, []).append(value)
    rows = [f"| `{key}` | {values[0]:.4g} | {values[-1]:.4g} |" for key, values in found.items()]
    head = ["| metric | first | last |", "| --- | --- | --- |"]
    return "\n".join([*head, *rows]) if rows else ""


def _loading(place: str, base: str, adapter: bool, config: Mapping[str, Any]) -> str:
    """How to load it; by AutoModel where its class was saved by these transformers."""
    text = f'from mmrl.models import load_policy  # mmrl\n\npolicy = load_policy("{place}")'
    blocks = ["## Load", f"```python\n{text}\n```"]
    saved_by, own = str(config.get("transformers_version")), transformers.__version__
    if "AutoModel" in config.get("auto_map", {}) and saved_by.split(".")[0] == own.split(".")[0]:
        imports = "from peft import PeftModel\n" if adapter else ""
        load = f'AutoModel.from_pretrained("{base if adapter else place}", trust_remote_code=True)'
        put = f'\nmodel = PeftModel.from_pretrained(model, "{place}")' if adapter else ""
        text = f"{imports}from transformers import AutoModel\n\nmodel = {load}{put}"
        blocks.append(f"```python\n{text}\n```")
    return "\n\n".join(blocks)
