"""Lines of a plan about the memory of a process: what holds it, and the peak of each phase."""

from collections.abc import Iterator

from mmrl.preflight.disk import format_size
from mmrl.preflight.state_memory import RESIDENT, Needs
from mmrl.runtime.placement import Placement

NOTES = {
    "buckets": "  copies of gradients that are reduced",
    "kept weights": "  whole, beside this process's part",
    "kept gradients": "  this process's part, kept from step to step",
    "value": "  value model with gradients and moments",
    "loading": "  beside the weights, while they are loaded",
    "update": "  activations of a micro-batch, gathered weights, gradients that are reduced",
    "sampling": "  activations or logits, gathered weights",
    "step": "  temporaries of the optimiser",
    "snapshot": "  the checkpoint that a thread writes, main process",
    "saving": "  whole tensors that the main process writes",
}


def describe_memory(needs: Needs, placement: Placement) -> Iterator[str]:
    """Lines about the memory of a process and its peak in each phase.

    Args:
        needs: of the process.
        placement: how processes share the model.
    """
    host = placement.device == "cpu"
    yield f"memory per {'process' if host else 'device'}, estimated: {placement}"
    order = [*RESIDENT[:2], "gradients", *RESIDENT[2:], "loading", "sampling", "update", "step"]
    for name in [*order, "saving"]:
        for place, parts in zip(("", " in host memory"), needs.places, strict=True):
            if parts.get(name):
                yield f"  {name:<16}{format_size(parts[name])}{place}{NOTES.get(name, '')}"
    highest = needs.peak()
    for phase in needs.phases():
        beside = f" and {format_size(phase.host).strip()} in host memory" if phase.host else ""
        peak = "  the peak; image tokenizer and rewards come on top" * (phase == highest)
        yield f"  {phase.phase:<16}{format_size(phase.device)}{beside}{peak}"
