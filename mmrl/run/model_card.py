"""The model card, README.md, of what a run has trained."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from mmrl.config import to_plain
from mmrl.models.source import is_adapter
from mmrl.run.checkpoint import ASIDE


def write_card(folder: Path, settings: Any, metrics: Sequence[Mapping[str, Any]]) -> None:
    """Write the card of a trained policy beside it; nothing into a folder of anything else. It is
    of the settings of a run and the lines of its `metrics.jsonl`."""
    if (folder / "tokenizer.json").is_file():
        plain = to_plain(settings)
        # a folder is written under another name, see `write_directory`
        place = plain.get("hub_model_id") or str(folder).removesuffix(ASIDE)
        model_card(plain, metrics, is_adapter(folder), place).save(folder / "README.md")


def model_card(
    settings: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]], adapter: bool, place: str
) -> ModelCard:
    """The card of a model or an `adapter` that is loaded from `place`, a path or hub id."""
    model = settings.get("model") or {"path": settings.get("objective", {}).get("model", "")}
    known = bool(model["path"]) and not Path(model["path"]).expanduser().is_dir()
    kind = "reinforcement-learning" if "tasks" in settings else "sft"
    head = ModelCardData(
        base_model=model["path"] if known else None,
        library_name="peft" if adapter else "transformers",
        tags=["mmrl", kind, "masked-diffusion", *(["lora"] if adapter else [])],
    )
    return ModelCard.from_template(
        head,
        str(Path(__file__).with_name("model_card.md.j2")),
        name=settings.get("hub_model_id") or Path(settings["output_dir"]).name,
        base=model["path"],
        adapter=adapter,
        settings=settings,
        numbers=_numbers(metrics),
        place=place,
    )


def _numbers(metrics: Sequence[Mapping[str, Any]]) -> list[tuple[str, float, float]]:
    """The first and last value of each reward, evaluation and loss."""
    found: dict[str, list[float]] = {}
    for line in metrics:
        for key, value in line.items():
            shown = key.split("/")[-1] in ("reward", "loss") or key.startswith("eval/")
            if shown and isinstance(value, int | float) and key.count("/") < 3:
                found.setdefault(key, []).append(value)
    return [(key, values[0], values[-1]) for key, values in found.items()]
