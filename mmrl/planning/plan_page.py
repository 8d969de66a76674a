"""What a dry run prints: a plan on one screen, and why the run would be refused."""

import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from mmrl.config import ConfigError, to_yaml
from mmrl.planning.network_memory import WORKING, Needs
from mmrl.run.settings_changed import list_changed
from mmrl.runtime.placement import Placement
from mmrl.training.trainable import count_parts

LINES, WIDTH, NAMES, SHORT = 45, 120, 12, 36
"""Lines of a page; characters of a line, of the name before it, of the value of a setting."""
ELSEWHERE = ", not on this machine: loaded from the hub"
NEAR = 0.9
"""Share of the memory above which image tokenizer, rewards and allocator may not fit beside it."""


@dataclass
class Plan:
    """What a run with these settings would do, as rows of name and text, one without a name
    belonging to the row above it; why it would be refused; and bytes that it leaves on disk."""

    config: Any
    rows: list[tuple[str, str]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    stored: float = 0.0

    def add(self, name: str, *texts: str) -> None:
        """Add a row of some lines."""
        self.rows += [("" if n else name, text) for n, text in enumerate(texts)]

    def refuse(self, *reasons: str) -> None:
        """Add reasons for which the run would be refused; an empty one is none."""
        self.refused += filter(None, reasons)

    def check(self) -> None:
        """Raise a ConfigError where the run would be refused."""
        if self.refused:
            raise ConfigError("\n".join(self.refused))

    def __str__(self) -> str:
        lines = ["plan", *(line for row in self.rows for line in _wrap(*row))]
        if self.config.verbose:
            return "\n".join([*lines, "settings", to_yaml(self.config)])
        lines += ["settings that differ from their defaults; all of them: verbose=true"]
        sections: dict[str, list[str]] = {}
        for key, value in list_changed(self.config).items():
            section, _, name = key.rpartition(".")
            sections.setdefault(section, []).append(f"{name}={_short(value)}")
        settings = [line for name, of in sections.items() for line in _wrap(name, ", ".join(of))]
        left = max(1, LINES - len(lines))
        if len(settings) > left:
            settings[left - 1 :] = [f"  … and {len(settings) - left + 1} more lines"]
        return "\n".join([*lines, *settings]) + "\n"


def add_trained(plan: Plan, network: nn.Module, adapter: int = 0) -> None:
    """Add the parts of a network that are trained, and those that are not; `adapter` is how many
    numbers an adapter has that the network does not have yet."""
    counts = count_parts(network)
    for key in ("adapter", "total") if adapter else ():
        counts[key] = [number + adapter for number in counts.get(key, (0, 0))]
    trained, every = counts.pop("total")
    whole = [name for name, (some, of) in counts.items() if some == of]
    partly = [f"{name} in part" for name, (some, of) in counts.items() if 0 < some < of]
    frozen = [name for name, (some, _) in counts.items() if not some]
    rest = f"; frozen: {', '.join(frozen)}" if frozen else ""
    shown = ", ".join([*whole, *partly])
    plan.add("trained", f"{trained:,} of {every:,} parameters: {shown}{rest}")


def add_run(
    plan: Plan, start: Path | None, updates: int | None, length: str, world_size: int
) -> None:
    """Add steps (their `length` in words) and optimiser of a run that continues from `start`; of
    `updates` optimiser steps, None where only the data say."""
    config = plan.config
    since = "the first step" if start is None else str(start)
    processes = f"{world_size} process{'' if world_size == 1 else 'es'}"
    due = [("evaluation", config.eval_steps), ("checkpoint", config.save_steps)]
    every = [f"{name} every {n} steps" if n else f"no {name}" for name, n in due]
    run = [f"{config.output_dir}", f"{length} from {since}", f"seed {config.seed}", processes]
    plan.add("run", ", ".join([*run, *every]))
    decay = [f"weight decay {config.weight_decay:g}"] if config.weight_decay else []
    warm = f" after {config.warmup_steps} steps of warm-up" if config.warmup_steps else ""
    rate = f"learning rate {config.learning_rate:g}, {config.lr_scheduler_type}{warm}"
    number = [f"{updates} optimiser steps"] if updates else []
    plan.add("optimiser", ", ".join([config.optimizer, rate, *decay, *number]))


def add_memory(plan: Plan, needs: Needs, placement: Placement) -> None:
    """Add the memory of a process to a plan, which is refused where a known GPU has less."""
    (phase, peak), memory, here = needs.peak(), placement.memory, placement.device == "cpu"
    plan.add("memory", f"per {'process' if here else 'device'}, estimated: {placement}")
    owner = placement.named.name if placement.named else f"this {placement.device.upper()}"
    lacks = memory is not None and peak > memory
    verdict = "the device is not known here: devices=8xA100-80GB names it"
    if memory is not None:
        near = "may not fit, as image tokenizer and rewards come on top"
        word = "DOES NOT FIT" if lacks else near if peak > NEAR * memory else "fits"
        verdict = f"of {format_size(memory)} of {owner}: {word}"
    verdict += "; devices=8xA100-80GB plans for others" if lacks and here else ""
    plan.add("", f"{format_size(peak)} at the peak, {phase}, {verdict}")
    for name, parts in (("held", needs.device), ("host memory", needs.host)):
        shown = parts.keys() - {*WORKING}
        times = {key: needs.present_in(key) if parts is needs.device else () for key in shown}
        when = {key: f" in {each[0]}" if len(each) == 1 else "" for key, each in times.items()}
        held = [f"{k} {format_size(n)}{when[k]}" for k, n in parts.items() if n and k in shown]
        plan.add("", *([f"{name}: {', '.join(held)}"] if held else []))
    peaks = (f"{name} {format_size(size)}" for name, size in needs.phases().items())
    plan.add("", f"peaks: {', '.join(peaks)}")
    if lacks and memory is not None and not here:
        plan.refuse(
            f"{owner} has {format_size(memory)}, and {phase} is estimated to take"
            f" {format_size(peak)} of each device. Take smaller batches,"
            " model.gradient_checkpointing or model.lora, or devices that share the model:"
            " launch_config=configs/accelerate/fsdp2.yaml; see docs/troubleshooting.md."
        )


def _short(value: Any) -> str:
    """A value as the command line has it, on one line, long ones cut."""
    words = {None: "null", True: "true", False: "false"}
    text = f"{value:g}" if isinstance(value, float) else str(value)
    text = words[value] if value is None or isinstance(value, bool) else " ".join(text.split())
    return cut(text, SHORT)


def _wrap(name: str, text: str) -> list[str]:
    head = f"  {name:<{NAMES - 1}} "
    wrapper = textwrap.TextWrapper(WIDTH, head, " " * (NAMES + 2), break_on_hyphens=False)
    wrapper.break_long_words = False
    return wrapper.wrap(text) or [head.rstrip()]


def cut(text: str, length: int = 2 * WIDTH) -> str:
    """A text of at most that many characters."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def format_size(size: float) -> str:
    """A number of bytes in MiB or GiB."""
    unit, power = ("GiB", 30) if size >= 2**29 else ("MiB", 20)
    return f"{size / 2**power:.2f} {unit}"
