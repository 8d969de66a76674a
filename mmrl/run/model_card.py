"""The model card, README.md, of what a run has trained."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData, metadata_load

from mmrl.config import to_plain
from mmrl.config.checks import is_hub_id
from mmrl.data.rows import SUFFIXES
from mmrl.generation.kinds import SAMPLER_KINDS, SAMPLERS
from mmrl.models.source import find_base, is_adapter
from mmrl.pretrained.known import adapter_directory, known_file
from mmrl.pretrained.model_config import ModelConfig
from mmrl.run.curves import line_plot
from mmrl.run.report import COMPARED, FIGURES, collect_points, matching
from mmrl.samplers import SamplerConfig

Plain = Mapping[str, Any]
Lines = Sequence[Plain]
POLICIES = ("tokenizer.json", "model_index.json", "adapter_config.json")
"""Files by which a folder is a policy: a whole model, a pipeline, an adapter."""
CURVES = "curves.svg"
TAGS = {"masked": "masked-diffusion", "causal": "autoregressive", "flow": "flow-matching"}
HUB_TASKS = {
    "text": "text-generation",
    "image_to_text": "image-text-to-text",
    "image_edit": "image-to-image",
    "text_to_image": "text-to-image",
    "text_to_video": "text-to-video",
}
"""Task -> what the hub calls it."""
DRAWN = ("text", "text_to_image", "text_to_video")
"""Tasks whose prompt is a text alone, so that the card can show how to sample."""


def write_card(
    folder: Path, settings: Any, metrics: Lines, step: int, place: str | Path, part: str = ""
) -> None:
    """Write the card of a trained policy beside it, with its curves; nothing into a folder of
    anything else. It is of the settings of a run, the lines of its `metrics.jsonl` and its steps so
    far. The policy is loaded from a `part` of `place`, a hub id or a Path."""
    if not any((folder / name).is_file() for name in POLICIES):
        return
    plain = to_plain(settings)
    place, part = (place / part, "") if isinstance(place, Path) else (place, part)
    library = "diffusers" if (folder / "model_index.json").is_file() else "transformers"
    library, curves = "peft" if is_adapter(folder) else library, _curves(metrics)
    shown = {"step": step, "place": place, "part": part, "curves": CURVES if curves else None}
    model_card(plain, metrics, library, **shown).save(folder / "README.md")
    if curves:
        (folder / CURVES).write_text(line_plot(curves), encoding="utf-8")


def model_card(settings: Plain, metrics: Lines, library: str, **shown: Any) -> ModelCard:
    """The card of a model that a library reads; `shown`: its step, place, part and curves."""
    model = settings.get("model") or {"path": settings.get("objective", {}).get("model", "")}
    tasks, base = [*settings.get("tasks", {}).values()], model["path"]
    drawn = next((each for each in tasks if each["task"] in DRAWN), None)
    continued = adapter_directory(base) if base else None
    earlier, base = (base, str(find_base(continued))) if continued else ("", base)
    sources = {str(each["prompts"]) for each in tasks}
    files = {each for each in sources if Path(each).suffix in SUFFIXES or Path(each).exists()}
    tags = ["mmrl", "reinforcement-learning" if tasks else "sft"]
    tags += sorted({TAGS[SAMPLER_KINDS[each["sampler"]["name"]]] for each in tasks})
    head = ModelCardData(
        base_model=base if base and not Path(base).expanduser().is_dir() else None,
        library_name=library,
        pipeline_tag=next(filter(None, (HUB_TASKS.get(each["task"]) for each in tasks)), None),
        license=find_licence(base),
        datasets=sorted(filter(is_hub_id, sources - files)),
        tags=[*tags, *["lora"] * (library == "peft")],
    )
    return ModelCard.from_template(
        head,
        str(Path(__file__).with_name("model_card.md.j2")),
        name=settings.get("hub_model_id") or Path(settings["output_dir"]).name,
        base=base,
        earlier=earlier,
        settings=settings,
        numbers=_numbers(metrics),
        options=_changed(model, asdict(ModelConfig()), ("image_size", "max_prompt_length")),
        drawn=drawn,
        sampler=_sampler(drawn) if drawn else {},
        **shown,
    )


def find_licence(base: str) -> str | None:
    """The licence that the card of a base states, where the card is on this machine."""
    place = known_file(base, "README.md")
    return ((metadata_load(place) if place else None) or {}).get("license")


def _sampler(task: Mapping[str, Any]) -> dict[str, Any]:
    """What the sampler of a task's evaluations, else of its rollouts, has set; an engine needs a
    server or a GPU, and gives way to the sampler of this process."""
    settings = task.get("eval_sampler") or task["sampler"]
    if SAMPLERS[settings["name"]].prepare is not None:
        return {"name": "autoregressive"}
    default = to_plain(SamplerConfig(name=settings["name"]))
    return {"name": settings["name"], **_changed(settings, default, default)}


def _changed(settings: Plain, default: Plain, names: Sequence[str] | Mapping) -> dict[str, Any]:
    return {n: settings[n] for n in names if n in settings and settings[n] != default[n]}


def _curves(metrics: Lines) -> dict[str, Any]:
    """Rewards and held-out scores over the steps."""
    points = collect_points(metrics)
    found = [matching(points, FIGURES[title]) for title in COMPARED]
    return {name: each for some in found for name, each in some.items() if len(each) > 1}


def _numbers(metrics: Lines) -> list[tuple[str, float, float]]:
    """The first and last value of each reward, evaluation and loss."""
    found: dict[str, list[float]] = {}
    for line in metrics:
        for key, value in line.items():
            shown = key.split("/")[-1] in ("reward", "loss") or key.startswith("eval/")
            if shown and isinstance(value, int | float) and key.count("/") < 3:
                found.setdefault(key, []).append(value)
    return [(key, values[0], values[-1]) for key, values in found.items()]
