"""Memory, traffic and time of an RL step of the 8B models on 1, 8 and 64 GPUs, from sizes alone.

    python scripts/bench/scaling.py num_prompts=64
    python scripts/bench/scaling.py rollout_mfu=0.3 bus_share=0.6

Nothing is measured: it prints the tables of docs/results/scaling.md. Memory is the estimate of the
dry run (`mmrl.planning.memory`), operations are those of `mmrl.models.network.flops`. A GPU is an
H100 with 8 to a node.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from mmrl.config import check  # noqa: E402
from mmrl.config.command import Usage, read_settings  # noqa: E402

NODE, DEVICES = 8, (1, 8, 64)
LARGEST = 128
"""Largest batch that is tried."""
GIB = 2**30


@dataclass(kw_only=True, frozen=True)
class Setting:
    """Assumptions; `key=value` on the command line changes them."""

    tflop_per_s: float = 989.0
    """Dense bfloat16 products of a GPU."""
    memory_tb_per_s: float = 3.35
    """Of the memory of a GPU."""
    memory_gib: float = 75.0
    """What a run may take of a GPU's 80 GB; the rest is the context and the allocator's."""
    node_gb_per_s: float = 450.0
    """Between GPUs of a node, in each direction (NVLink, 900 in both)."""
    between_gb_per_s: float = 50.0
    """Between nodes, of each GPU (400 Gb/s)."""
    bus_share: float = 0.8
    """Share of these rates that a collective reaches."""
    update_mfu: float = 0.4
    """Share of the products' rate that an update and scoring reach."""
    rollout_mfu: float = 0.4
    """The same of a rollout, where reading the weights does not take longer."""
    num_prompts: int = 64
    """Groups of a step."""
    num_generations: int = 8
    """Rollouts of a group."""
    rollout_batch: int = 8
    """Rollouts sampled at once on a GPU."""
    micro_batch: int = 4
    """Rollouts of a micro-batch."""
    rank: int = 128
    """Of the adapter."""

    def __post_init__(self) -> None:
        rollouts = self.num_prompts * self.num_generations
        fits = rollouts % (self.micro_batch * DEVICES[-1]) == 0
        check(fits, "micro_batch", self.micro_batch, f"a divisor of the rollouts of {DEVICES[-1]}")


if __name__ == "__main__":  # before the seconds that torch takes
    SETTING = read_settings(
        Usage("python scripts/bench/scaling.py", __doc__, Setting), sys.argv[1:]
    )

from public_runs import Case, build_cases  # noqa: E402

from mmrl.algorithms.forwards import count_forwards  # noqa: E402
from mmrl.models.network.flops import count_backward, count_forward, row_sizes  # noqa: E402
from mmrl.planning.memory import estimate  # noqa: E402
from mmrl.rollouts.tasks import Task  # noqa: E402
from mmrl.runtime.placement import Placement  # noqa: E402

WAYS: dict[str, Callable[[int], Placement]] = {
    "DDP": lambda n: Placement("whole", n, 1, min(n, NODE), device="cuda"),
    "ZeRO-2": lambda n: Placement("zero2", n, n, min(n, NODE), device="cuda"),
    "ZeRO-2, optimiser in host memory": lambda n: Placement(
        "zero2", n, n, min(n, NODE), offload_optimizer=True, device="cuda"
    ),
    "ZeRO-3": lambda n: Placement("zero3", n, n, min(n, NODE), device="cuda"),
    "ZeRO-3, weights and optimiser in host memory": lambda n: Placement(
        "zero3", n, n, min(n, NODE), True, True, "cuda"
    ),
    "ZeRO-3, whole weights in rollouts": lambda n: Placement(
        "zero3", n, n, min(n, NODE), device="cuda"
    ),
    "FSDP2": lambda n: Placement("fsdp2", n, n, min(n, NODE), device="cuda"),
    "FSDP2, whole weights in rollouts": lambda n: Placement(
        "fsdp2", n, n, min(n, NODE), device="cuda"
    ),
    "FSDP2, a copy in each node (HSDP)": lambda n: Placement(
        "fsdp2", n, min(n, NODE), min(n, NODE), device="cuda"
    ),
    "FSDP2, all in host memory": lambda n: Placement(
        "fsdp2", n, n, min(n, NODE), True, True, "cuda"
    ),
}
"""By name; without `whole` in it, rollouts gather by block."""


def phases(case: Case, way: str, n: int, **changes: Any) -> dict[str, tuple[float, float]]:
    """GiB on the device and in the memory of the host, by phase, in a way on `n` GPUs."""
    config, task = case.config, case.task
    changes["rollout_weights"] = "whole" if "whole" in way else "by_block"
    if "rollout_batch_size" in changes:
        options = replace(task.config, rollout_batch_size=changes.pop("rollout_batch_size"))
        config = replace(config, tasks={"task": options})
        task = Task("task", options)
    needs = estimate(replace(config, **changes), case.raw, [task], WAYS[way](n))
    return {each.phase: (each.device / GIB, each.host / GIB) for each in needs.phases()}


def memory_rows(s: Setting, case: Case) -> Iterator[list[str]]:
    """Peak per device once the model is loaded, in each way, with its phase."""
    yield ["way", *(f"{n} GPU{'s' * (n > 1)}" for n in DEVICES)]
    for way in WAYS:
        cells = []
        for n in DEVICES:
            if n == 1 and "host memory" not in way and way != "DDP":
                cells.append("")
                continue
            found = phases(case, way, n)
            del found["loading"]
            phase = max(found, key=lambda name: found[name][0])
            gib, host = found[phase][0], max(each for _, each in found.values())
            text = f"{gib:.0f} ({phase})"
            text = f"**{text}**" if gib > s.memory_gib else text
            cells.append(text + (f" + {host:.0f} host" if host >= 8 and "host" in way else ""))
        yield [way, *cells]


def batch_rows(s: Setting, case: Case) -> Iterator[list[str]]:
    """Largest micro-batch and rollout batch that fit, powers of two."""
    yield ["way", *(f"{n} GPU{'s' * (n > 1)}" for n in DEVICES)]
    update = "per_device_train_batch_size", ("update", "optimiser step")
    shared = [way for way in WAYS if way.startswith(("ZeRO-3", "FSDP2")) and "host" not in way]
    for way in ("DDP", *(way for way in shared if "HSDP" not in way), "FSDP2, all in host memory"):
        cells = []
        for n in DEVICES:
            if n == 1 and way in shared:
                cells.append("")
                continue
            sizes = largest(s, case, way, n, *update), None
            if sizes[0]:
                sizes = sizes[0], largest(s, case, way, n, "rollout_batch_size", ("rollout",))
            cells.append(f"{sizes[0]} / {sizes[1]}" if all(sizes) else "none")
        yield [way, *cells]


def largest(s: Setting, case: Case, way: str, n: int, key: str, names: Sequence[str]) -> int:
    """The largest power of two with which some phases fit, at most `LARGEST` and a device's share;
    0 for none. Between two sizes memory is taken to be linear, which overestimates it."""
    most = min(LARGEST, s.num_prompts * s.num_generations // n)

    def need(size: int) -> float:
        found = phases(case, way, n, **{key: size})
        return max(found[name][0] for name in names)

    if (whole := need(most)) <= s.memory_gib:
        return most
    if (one := need(1)) > s.memory_gib:
        return 0
    fits = 1 + (s.memory_gib - one) * (most - 1) / (whole - one)
    return 2 ** int(math.log2(fits))


@dataclass
class Work:
    """Of a step on all devices together, in operations: `rollout` by forward pass of a rollout."""

    rollout: list[float]
    scoring: float
    update: float
    forwards: dict[str, int]


@lru_cache
def count_work(s: Setting, case: Case) -> Work:
    """Operations of a step, and the forward passes that a rollout takes part in."""
    algorithm, rollouts = case.task.algorithm, s.num_prompts * s.num_generations
    core, columns = case.core, case.core.vocab_size
    if case.task.config.sampler.block_size is None:
        columns = case.raw["codebook_size"]
    masked = case.length  # diffu_grpo hides all of it, mask_grpo most of it
    size = row_sizes(1, case.prompt + case.length, masked, columns)
    passes = [
        count_forwards(algorithm, case.task.config.sampler.steps, case.length, 2, iteration)
        for iteration in range(algorithm.num_iterations)
    ]
    frozen = sum(each.old + each.reference for each in passes)
    new = sum(each.new for each in passes)
    trained = count_forward(core, size, case.adapter) + count_backward(core, size, case.adapter)
    return Work(
        [rollouts * count_forward(core, each) for each in case.passes],
        rollouts * frozen * count_forward(core, size),
        rollouts * new * trained,
        {"rollout": len(case.passes), "scoring": frozen, "update": new},
    )


def flops_rows(s: Setting, cases: Sequence[Case]) -> Iterator[list[str]]:
    """Operations of a step, by phase, and their shares."""
    yield [
        "run",
        "rollout",
        "scoring",
        "update",
        "forward passes each",
        "PFLOP each",
    ]
    rollouts = s.num_prompts * s.num_generations
    for case in cases:
        work = count_work(s, case)
        parts = [sum(work.rollout), work.scoring, work.update]
        total = sum(parts)
        passes = " + ".join(str(number) for number in work.forwards.values())
        yield [
            case.title,
            *(f"{part / 1e15:,.0f} PFLOP ({part / total:.0%})" for part in parts),
            passes,
            f"{total / rollouts / 1e15:.2f}",
        ]


@dataclass
class Traffic:
    """Bytes that a GPU receives in a step, and seconds of its collectives, by phase."""

    rollout: float = 0.0
    scoring: float = 0.0
    update: float = 0.0

    def __add__(self, other: "Traffic") -> "Traffic":
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Traffic(*(a + b for a, b in pairs))


def count_traffic(s: Setting, case: Case, way: str, n: int, once: bool = False) -> Traffic:
    """Bytes that each GPU receives.

    Args:
        s: assumptions.
        case: of the run.
        way: `DDP`, `ZeRO-2`, `ZeRO-3`, `FSDP2`.
        n: devices that share the model.
        once: whether sampling gathers the weights once, and not in every forward pass.
    """
    work, share = count_work(s, case), s.num_prompts * s.num_generations // n
    updates, part = case.task.algorithm.num_iterations, (n - 1) / n
    micro = share // min(share, s.micro_batch)
    batches = -(-share // s.rollout_batch)
    if way == "DDP":
        return Traffic(update=updates * 2 * part * case.trained)
    if way == "ZeRO-2":  # gradients of every micro-batch, then the weights that were changed
        changed = case.trained if case.adapter is None else case.trained / 2
        return Traffic(update=updates * part * (micro * case.trained + changed))
    gathers = 1 if once else batches * work.forwards["rollout"]
    weights = case.gathered if way == "FSDP2" else case.weights
    if once and case.adapter is not None:  # the base stays whole
        weights = case.trained
    return Traffic(
        part * weights * gathers,
        part * weights * micro * work.forwards["scoring"],
        # forward and backward each gather the weights
        part * (2 * weights + case.trained) * micro * work.forwards["update"],
    )


def bus(s: Setting, n: int) -> float:
    """Bytes per second of a collective among `n` GPUs: rings pass through all links of a node."""
    rate = s.node_gb_per_s if n <= NODE else min(s.node_gb_per_s, NODE * s.between_gb_per_s)
    return s.bus_share * rate * 1e9


def compute_seconds(s: Setting, case: Case, n: int) -> Traffic:
    """Seconds of computing a step, by phase."""
    work, rate = count_work(s, case), s.tflop_per_s * 1e12
    rollouts = s.num_prompts * s.num_generations
    share = rollouts // n
    batches = -(-share // s.rollout_batch)
    read = case.weights / (s.memory_tb_per_s * 1e12)
    per_pass = [flops / n / batches / (rate * s.rollout_mfu) for flops in work.rollout]
    return Traffic(
        batches * sum(max(seconds, read) for seconds in per_pass),
        work.scoring / n / (rate * s.update_mfu),
        work.update / n / (rate * s.update_mfu),
    )


def traffic_rows(s: Setting, case: Case) -> Iterator[list[str]]:
    """Bytes that a GPU receives in a step, and the seconds of its collectives alone."""
    head = [
        f"{phase}, {n} GPUs" for n in DEVICES[1:] for phase in ("rollout", "scoring and update")
    ]
    yield ["way", *head]
    ways = {
        "DDP": ("DDP", False),
        "ZeRO-2": ("ZeRO-2", False),
        "ZeRO-3, by block": ("ZeRO-3", False),
        "ZeRO-3, whole for each rollout phase": ("ZeRO-3", True),
        "FSDP2, by block": ("FSDP2", False),
        "FSDP2, whole for each rollout phase": ("FSDP2", True),
    }
    for name, (way, once) in ways.items():
        cells = []
        for n in DEVICES[1:]:
            found, rate = count_traffic(s, case, way, n, once), bus(s, n)
            for size in (found.rollout, found.scoring + found.update):
                cells.append(f"{size / 1e9:,.0f} GB, {size / rate:,.1f} s" if size else "0")
        yield [name, *cells]


def time_rows(s: Setting, case: Case) -> Iterator[list[str]]:
    """Seconds of a step: each phase takes the longer of computing and its collectives."""
    yield ["way", "GPUs", "rollout", "scoring", "update", "step", "rollouts per second", "limit"]
    ways = {
        "DDP": ("DDP", False),
        "ZeRO-3, by block": ("ZeRO-3", False),
        "ZeRO-3, whole for each rollout phase": ("ZeRO-3", True),
        "FSDP2, by block": ("FSDP2", False),
        "FSDP2, whole for each rollout phase": ("FSDP2", True),
    }
    for name, (way, once) in ways.items():
        for n in DEVICES if way == "DDP" else DEVICES[1:]:
            computed = vars(compute_seconds(s, case, n))
            moved = vars(count_traffic(s, case, way, n, once))
            seconds, limits = {}, []
            for phase, own in computed.items():
                collectives = moved[phase] / bus(s, n)
                hidden = way != "DDP" and not (once and phase == "rollout")
                seconds[phase] = max(own, collectives) if hidden else own + collectives
                if collectives > own:
                    limits.append(f"{phase}: gathering")
            total = sum(seconds.values())
            rollouts = s.num_prompts * s.num_generations
            yield [
                name,
                str(n),
                *(f"{value:,.1f} s ({value / total:.0%})" for value in seconds.values()),
                f"{total:,.1f} s",
                f"{rollouts / total:.2f}",
                ", ".join(limits) or "computing",
            ]


def format_table(rows: Iterator[list[str]]) -> str:
    """Rows as a table of Markdown; the first is its head."""
    head, *rest = rows
    lines = [head, ["---"] * len(head), *rest]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def tables(s: Setting, memory: bool = True) -> Iterator[tuple[str, str]]:
    """Title and table, in the order of the page; those of memory take a minute."""
    cases = build_cases(
        s.rank,
        s.micro_batch,
        num_prompts=s.num_prompts,
        num_generations=s.num_generations,
        rollout_batch_size=s.rollout_batch,
    )
    yield "Operations of a step", format_table(flops_rows(s, cases))
    for case in cases:
        if memory:
            yield f"{case.title}: GiB per GPU at the peak", format_table(memory_rows(s, case))
            yield f"{case.title}: largest batches", format_table(batch_rows(s, case))
        yield f"{case.title}: received by a GPU in a step", format_table(traffic_rows(s, case))
        yield f"{case.title}: seconds of a step", format_table(time_rows(s, case))


if __name__ == "__main__":
    for title, table in tables(SETTING):
        print(f"{title}\n\n{table}\n", flush=True)
