"""How much of a policy gradient is signal, and whether it points where the recorded trace's does.

    python scripts/bench/gradient_noise.py config=configs/rl/shapes_t2i.yaml batches=16
    python scripts/bench/gradient_noise.py config=… tasks.shapes.sampler.temperature=1

Every method gets the same batches of rollouts at the starting weights, one inner iteration, no KL.
With gradients g_1 … g_n of a method and r_1 … r_n of the first one, over pairs i != j:

    share   mean <g_i, g_j> / mean |g_i|²: squared length of the mean gradient in that of one batch
    cosine  mean <g_i, r_j> / sqrt(mean <g_i, g_j> mean <r_i, r_j>): between the mean gradients

both for the gradient as it is (SGD's direction) and divided element by element by its root mean
square over the batches (AdamW's). Standard errors are the jackknife's over batches. Embedding and
head are left out: they hold the largest entries and would hide what the blocks learn. `parts=true`
adds the share of every part of the network, which patterns of `model.modules_to_train` can name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mmrl.config import check  # noqa: E402
from mmrl.config.command import Usage, read_settings  # noqa: E402
from mmrl.rl_config import RLConfig  # noqa: E402


@dataclass(kw_only=True)
class Config(RLConfig):
    """A run with one task, and the methods to compare on its rollouts."""

    batches: int = 8
    """Steps' worth of rollouts."""
    methods: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {
            "trace_rl": {"name": "trace_rl", "slice_size": 1, "num_slices": 4},
            "mask_grpo": {"name": "mask_grpo", "min_mask_rate": 0.6},
            "random_masking": {"name": "random_masking"},
        }
    )
    """Algorithms by the name they get in the table; the first is what the others are held to."""
    parts: bool = False
    """Whether the shares of the parts of the network are printed as well."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.batches >= 3, "batches", self.batches, "at least 3")
        check(len(self.tasks) == 1, "tasks", list(self.tasks), "a single task")


if __name__ == "__main__":  # before the seconds that torch takes
    SETTING = read_settings(
        Usage("python scripts/bench/gradient_noise.py", __doc__, Config, "rl"), sys.argv[1:]
    )

import torch  # noqa: E402
from accelerate import Accelerator  # noqa: E402
from torch import Tensor  # noqa: E402

from mmrl.models import load_policy  # noqa: E402
from mmrl.pretrained.model_config import policy_options  # noqa: E402
from mmrl.rollouts.rollout import sample_groups, score_groups  # noqa: E402
from mmrl.rollouts.tasks import Task  # noqa: E402
from mmrl.training.trainer import Trainer  # noqa: E402


def part_of(name: str) -> str:
    """The part of the network that a weight belongs to: `blocks.*.attn.v`, `head`."""
    return re.sub(r"^blocks\.\d+", "blocks.*", name.rpartition(".")[0])


def gradients(config: Config) -> dict[str, dict[str, Tensor]]:
    """Gradients [batches, N] by method and part of the network."""
    [(name, options)] = config.tasks.items()
    still = {"optimizer": "sgd", "learning_rate": 1e-30, "momentum": 0.0, "max_grad_norm": 0.0}
    policy = load_policy(**policy_options(config.model))
    trainer = Trainer(replace(config, **still), policy, Accelerator(cpu=True))
    weights: dict[str, list[torch.nn.Parameter]] = {}
    for key, weight in policy.network.named_parameters():
        weights.setdefault(part_of(key), []).append(weight)
    seen: list[dict[str, Tensor]] = []

    def note(*_: object) -> None:
        found = {part: [p.grad.flatten() for p in of if p.grad is not None] for part, of in parts}
        seen.append({part: torch.cat(grads) for part, grads in found.items() if grads})

    parts = weights.items()
    trainer.optimizer.optimizer.register_step_pre_hook(note)
    temperature = options.sampler.temperature
    same = {"beta": 0.0, "num_iterations": 1, "temperature": temperature}
    tasks = {
        method: Task(name, replace(options, algorithm={**algorithm, **same}))
        for method, algorithm in config.methods.items()
    }
    # rollouts are the same for all; completions are sampled beside them where a method reads them
    first = max(tasks.values(), key=lambda task: task.algorithm.completion_value is not None)
    first.bind_policy(policy, config.seed)
    found: dict[str, list[dict[str, Tensor]]] = {method: [] for method in tasks}
    for step in range(config.batches):
        trainer.step = step
        batch = score_groups(sample_groups(first, policy, step, config.seed, 0, 1))
        for method, task in tasks.items():
            trainer.update({name: (task, batch)})
            found[method].append(seen.pop())
    return {
        method: {part: torch.stack([row[part] for row in rows]) for part in rows[0]}
        for method, rows in found.items()
    }


def of_blocks(rows: Mapping[str, Tensor]) -> Tensor:
    """Gradients [batches, N] of the blocks, of those by part."""
    return torch.cat([of for part, of in rows.items() if part.startswith("blocks")], dim=1)


def adam_scaled(rows: Tensor) -> Tensor:
    """Gradients [n, N] divided by the root mean square of each entry; 0 where it is always 0."""
    return (rows / rows.square().mean(0).sqrt()).nan_to_num(0.0)


class Products(NamedTuple):
    """Inner products [n, n] of a method's gradients, with the first method's, and among those."""

    own: Tensor
    cross: Tensor
    first: Tensor

    def without(self, batch: int) -> Products:
        """The same with a batch left out."""
        kept = torch.arange(len(self.own)) != batch
        return Products(*(products[kept][:, kept] for products in self))


def products(rows: Tensor, first: Tensor) -> Products:
    """Inner products of gradients [n, N] and those of the first method."""
    return Products(rows @ rows.T, rows @ first.T, first @ first.T)


def share(of: Products) -> float:
    """Squared length of the mean gradient in that of a batch's."""
    return pairs(of.own) / float(of.own.diag().mean())


def cosine(of: Products) -> float:
    """Cosine between the mean gradients of two methods; nan where noise hides one."""
    lengths = pairs(of.own) * pairs(of.first)
    return pairs(of.cross) / lengths**0.5 if lengths > 0 else float("nan")


def pairs(matrix: Tensor) -> float:
    """Mean of the entries off the diagonal of [n, n]."""
    n = len(matrix)
    return float((matrix.sum() - matrix.trace()) / (n * (n - 1)))


def jackknife(value: Callable[[Products], float], of: Products) -> str:
    """A number with its standard error over batches."""
    n = len(of.own)
    without = torch.tensor([value(of.without(batch)) for batch in range(n)])
    error = without.var(correction=0).item() ** 0.5 * (n - 1) ** 0.5
    return f"{value(of):6.3f} ± {error:5.3f}"


def show_methods(found: Mapping[str, Tensor]) -> None:
    """Print the table of methods, of their gradients [batches, N]."""
    first = next(iter(found.values()))
    rows = {}
    for method, own in found.items():
        plain, scaled = products(own, first), products(adam_scaled(own), adam_scaled(first))
        rows[method] = [jackknife(value, of) for of in (plain, scaled) for value in (share, cosine)]
    show(rows, ("share", "cosine", "share (AdamW)", "cosine (AdamW)"))


def show_parts(method: str, found: Mapping[str, Tensor]) -> None:
    """Print the table of the parts of the network, of a method's gradients [batches, N] of each."""
    rows = {}
    for part, own in found.items():
        length = own.square().sum(1).mean().sqrt().item()
        shares = [jackknife(share, products(of, of)) for of in (own, adam_scaled(own))]
        rows[part] = [f"{own.shape[1]:,}", f"{length:.4f}", *shares]
    sys.stdout.write(f"\n{method}\n")
    show(rows, ("weights", "length", "share", "share (AdamW)"))


def show(rows: Mapping[str, Sequence[str]], columns: Sequence[str]) -> None:
    """Print a table."""
    width = max(map(len, rows))
    for name, cells in {"": columns, **rows}.items():
        sys.stdout.write(f"{name:{width}}" + "".join(f"{cell:>18}" for cell in cells) + "\n")


def main(config: Config) -> None:
    """Print the tables."""
    found = gradients(config)
    show_methods({method: of_blocks(rows) for method, rows in found.items()})
    if config.parts:
        for method, rows in found.items():
            show_parts(method, rows)


if __name__ == "__main__":
    main(SETTING)
