"""Losses and gradients of TRL's GRPOTrainer, on given log-probs of completions of unequal lengths.

`tests/fixtures/trl/losses.json` has the numbers of TRL 1.16.0. To make them again, with TRL
installed:

    python -m tests.mmrl.algorithms.test_trl
"""

import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mmrl.algorithms import AlgorithmConfig, LossInputs, policy_loss
from mmrl.algorithms.aggregation import BatchSize
from mmrl.generation.masked.hidden import Hidden
from mmrl.types import Passes, Scores

FIXTURE = Path(__file__).parents[2] / "fixtures" / "trl" / "losses.json"
LENGTHS, LONGEST, HORIZON = [6, 1, 4, 3], 6, 8
"""Tokens of the completions, the width of their batch, and `max_completion_length`."""
SEQUENCE = {"loss_type": "grpo", "importance_sampling_level": "sequence"}
CASES: list[dict[str, Any]] = [
    {"loss_type": "grpo"},
    {"loss_type": "grpo", "beta": 0.3},
    {"loss_type": "grpo", "delta": 1.7, "epsilon_high": 0.28},
    {"loss_type": "bnpo", "beta": 0.3},
    {"loss_type": "dapo", "epsilon_high": 0.28},
    {"loss_type": "dapo", "epsilon_high": 0.28, "delta": 1.7, "beta": 0.3},
    {"loss_type": "dr_grpo"},
    {"loss_type": "dr_grpo", "beta": 0.3},
    {**SEQUENCE, "epsilon": 0.05, "epsilon_high": 0.06},
    {**SEQUENCE, "epsilon": 0.05, "beta": 0.3},
    {"loss_type": "cispo", "epsilon_high": 1.4},
    {"loss_type": "cispo", "epsilon_high": 1.4, "beta": 0.3},
]
"""Settings of GRPOConfig; `epsilon` is 0.2, and `beta` 0, where a case has none."""
COLUMNS = {
    "grpo": {"aggregation": "grpo"},
    "bnpo": {"aggregation": "dapo"},  # the batch here is that of one process and one micro-batch
    "dapo": {"aggregation": "dapo"},
    "dr_grpo": {"aggregation": "dr_grpo"},
    "cispo": {"aggregation": "dapo", "surrogate": "cispo"},
}


def draw() -> dict[str, Tensor]:
    """[B, T] float64 log-probs of three policies."""
    generator, shape = torch.Generator().manual_seed(0), (len(LENGTHS), LONGEST)
    new = -torch.rand(shape, generator=generator, dtype=torch.double) * 2
    moved = [torch.randn(shape, generator=generator, dtype=torch.double) for _ in range(2)]
    return {"new": new, "old": new - 0.4 * moved[0], "reference": new - 0.3 * moved[1]}


def complete(logprobs: dict[str, Any]) -> dict[str, Tensor]:
    """The tensors of a batch: with which entries are tokens, and an advantage per completion."""
    tensors = {name: torch.as_tensor(each, dtype=torch.double) for name, each in logprobs.items()}
    tensors["mask"] = torch.arange(LONGEST) < torch.tensor(LENGTHS)[:, None]
    return {**tensors, "advantages": torch.tensor([1.2, -0.7, -1.1, 0.6], dtype=torch.double)}


def of_trl(case: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Loss and gradient of `GRPOTrainer._compute_loss`, of which only the model is replaced."""
    from trl.trainer.grpo_trainer import GRPOTrainer  # pyright: ignore[reportMissingImports]

    new, mask = tensors["new"].clone().requires_grad_(), tensors["mask"].double()
    options = {"epsilon": 0.2, "beta": 0.0, "importance_sampling_level": "token", **case}
    same = SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x)
    trainer = SimpleNamespace(
        loss_type=options["loss_type"],
        importance_sampling_level=options["importance_sampling_level"],
        beta=options["beta"],
        epsilon_low=options["epsilon"],
        epsilon_high=options.get("epsilon_high", options["epsilon"]),
        max_completion_length=HORIZON,
        args=SimpleNamespace(
            delta=options.get("delta"), use_bias_correction_kl=False, steps_per_generation=1
        ),
        accelerator=same,
        model=SimpleNamespace(training=True),
        current_gradient_accumulation_steps=1,
        top_entropy_quantile=1.0,
        aux_loss_enabled=False,
        off_policy_mask_threshold=None,
        use_vllm=False,
        _entropy_bonus_enabled=False,
        _metrics={"train": defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *_, **__: (new, torch.zeros_like(new), None),
    )
    ids = torch.zeros(mask.shape, dtype=torch.long)
    inputs = {"prompt_ids": ids[:, :1], "prompt_mask": ids[:, :1], "completion_ids": ids}
    inputs |= {"completion_mask": mask, "advantages": tensors["advantages"]}
    inputs |= {"old_per_token_logps": tensors["old"], "ref_per_token_logps": tensors["reference"]}
    inputs |= {"num_items_in_batch": mask.sum()}
    loss = GRPOTrainer._compute_loss(trainer, trainer.model, inputs)
    return loss.detach(), torch.autograd.grad(loss, new)[0]


def of_mmrl(
    case: dict[str, Any], tensors: dict[str, Tensor], **columns: Any
) -> tuple[Tensor, Tensor]:
    """The same of one pass that scores every token, with the columns that TRL's names stand for."""
    options = {**case}
    found = {**COLUMNS[options.pop("loss_type")], **columns}
    if "importance_sampling_level" in options:
        found.setdefault("ratio_level", options.pop("importance_sampling_level"))
    if found.get("surrogate") == "cispo":
        options["epsilon_high"] -= 1  # there the largest ratio, here how far it is above 1
    config = AlgorithmConfig(**found, **options)
    new = tensors["new"].clone().requires_grad_()
    scored = tensors["mask"][None]
    old, reference = tensors["old"][None], tensors["reference"][None]
    tokens, rows = int(scored.sum()), int(scored.any(-1).sum())
    size = BatchSize(rows, tokens, tokens, HORIZON, rows, rows)
    passes = Passes(Hidden(scored), scored, scored.float())
    known = LossInputs(passes, Scores(new[None]), tensors["advantages"], Scores(old))
    known.reference = Scores(reference) if config.beta else None
    loss, _ = policy_loss(known, config, size)
    return loss.detach(), torch.autograd.grad(loss, new)[0]


@pytest.mark.parametrize("n", range(len(CASES)), ids=lambda n: str([*CASES[n].values()]))
def test_loss_and_gradient_are_those_of_trl(n: int) -> None:
    known = json.loads(FIXTURE.read_text())
    case, tensors, expected = CASES[n], complete(known["given"]), known["cases"][n]
    assert expected["options"] == case
    loss, gradient = of_mmrl(case, tensors)
    assert float(loss) == pytest.approx(expected["loss"], abs=1e-6)
    of_them = torch.tensor(expected["gradient"], dtype=torch.double)
    torch.testing.assert_close(gradient, of_them, atol=1e-6, rtol=0)
    assert bool((gradient[~tensors["mask"]] == 0).all()) and bool((gradient != 0).any())
    if case.get("importance_sampling_level") == "sequence":
        again, _ = of_mmrl(case, tensors, aggregation="gspo")
        assert float(again) == pytest.approx(float(loss), abs=1e-6), "gspo is grpo of one pass"


def test_a_completion_that_is_left_out_is_not_counted_where_trl_counts_it_as_zero() -> None:
    known = json.loads(FIXTURE.read_text())
    tensors = complete(known["given"])
    tensors["mask"][1] = False
    for loss_type, factor in (("grpo", 4 / 3), ("dapo", 1.0), ("dr_grpo", 4 / 3)):
        loss, _ = of_mmrl({"loss_type": loss_type}, tensors)
        expected = known["left out"][loss_type] * factor
        assert float(loss) == pytest.approx(expected, abs=1e-6), loss_type


def make(logprobs: dict[str, Any]) -> dict[str, Any]:
    """The contents of the fixture, from the installed TRL."""
    tensors, cases = complete(logprobs), []
    for options in CASES:
        loss, gradient = of_trl(options, tensors)
        cases.append({"options": options, "loss": float(loss), "gradient": gradient.tolist()})
    tensors["mask"][1] = False
    kinds = ("grpo", "dapo", "dr_grpo")
    left_out = {kind: float(of_trl({"loss_type": kind}, tensors)[0]) for kind in kinds}
    given = {name: tensors[name].tolist() for name in logprobs}
    return {"given": given, "cases": cases, "left out": left_out}


def test_the_fixture_is_what_trl_computes() -> None:
    pytest.importorskip("trl")
    known = json.loads(FIXTURE.read_text())
    found = make(known["given"])
    assert found["left out"] == pytest.approx(known["left out"], abs=1e-9)
    for one, other in zip(found["cases"], known["cases"], strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-9)
        gradients = (torch.tensor(each["gradient"]) for each in (one, other))
        torch.testing.assert_close(*gradients, atol=1e-9, rtol=0)


if __name__ == "__main__":
    FIXTURE.parent.mkdir(exist_ok=True)
    FIXTURE.write_text(json.dumps(make(draw())) + "\n")
