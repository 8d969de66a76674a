"""Rows of a plan about the memory of a process: whether it fits, what holds it, and its peaks."""

from mmrl.preflight.plan_page import Plan, format_size
from mmrl.preflight.state_memory import PHASES, RESIDENT, Needs
from mmrl.runtime.placement import Placement

NEAR = 0.9
"""Share of the memory above which image tokenizer, rewards and allocator may not fit beside it."""


def describe_memory(plan: Plan, needs: Needs, placement: Placement, whatever: bool = False) -> None:
    """Add the memory of a process to a plan, which is refused where a GPU that is known has less.

    Args:
        plan: of the run.
        needs: of the process.
        placement: how processes share the model.
        whatever: whether batches are found when the run starts, so that it is never refused.
    """
    each = "process" if placement.device == "cpu" else "device"
    peak, memory = needs.peak(), placement.memory
    plan.add("memory", f"per {each}, estimated: {placement}")
    owner = placement.named.name if placement.named else f"this {placement.device.upper()}"
    lacks = memory is not None and peak.device > memory
    verdict = "the device is not known here: devices=8xA100-80GB names it"
    if memory is not None:
        near = "may not fit, as image tokenizer and rewards come on top"
        word = "DOES NOT FIT" if lacks else near if peak.device > NEAR * memory else "fits"
        verdict = f"of {format_size(memory)} of {owner}: {word}"
    here = placement.device == "cpu"
    verdict += "; devices=8xA100-80GB plans for others" if lacks and here else ""
    plan.add("", f"{format_size(peak.device)} at the peak, {peak.phase}, {verdict}")
    order = [*RESIDENT[:2], "gradients", *RESIDENT[2:]]
    for name, parts in zip(("held", "host memory"), needs.places, strict=True):
        held = [f"{key} {format_size(parts[key])}" for key in order if parts.get(key)]
        if held:
            plan.add("", f"{name}: {', '.join(held)}")
    peaks = [
        f"{phase.phase} {format_size(phase.device)} (+ {format_size(own)})"
        for phase in needs.phases()
        if (own := sum(place.get(PHASES[phase.phase][-1], 0.0) for place in needs.places))
    ]
    plan.add("", f"peaks: {', '.join(peaks)}")
    if memory is not None and lacks and not here and not whatever:
        plan.refuse(
            f"{owner} has {format_size(memory)}, and {peak.phase} is estimated to take"
            f" {format_size(peak.device)} of each device. Take smaller batches,"
            " model.gradient_checkpointing or model.lora, or devices that share the model:"
            " launch_config=configs/accelerate/fsdp2.yaml; see docs/troubleshooting.md."
        )
