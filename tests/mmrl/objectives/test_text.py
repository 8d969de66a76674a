"""The loss of completions: what is learned, with which weight."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from mmrl.config import ConfigError
from mmrl.objectives.corruptions import Chance
from mmrl.objectives.scored_rows import stack_rows
from mmrl.objectives.text import CompletionConfig, Completions
from mmrl.objectives.text_source import build_row
from mmrl.rollouts.rollout import RolloutBatch
from mmrl.run.run_directory import RunDirectory
from mmrl.samplers import SamplerConfig, sample
from mmrl.sft import SFTConfig, train
from mmrl.training.completions import write_completions
from mmrl.types import Prompt
from tests.mmrl.objectives.completions import (
    ROWS,
    completions,
    example_of,
    gradients,
    ids,
    options,
    visits,
    write_rows,
)


@torch.no_grad()
def test_the_loss_is_lladas_on_completions_filled_to_the_longest_row(data: Path) -> None:
    objective = completions(data, fill="batch")
    batch = objective.batch(0, 0, 1)
    assert not batch.padded and batch.attention_mask is None
    expected = 0.0
    for row in range(len(ROWS)):
        given = len(example_of(objective, batch, row).prompt)
        answer = batch.ids.shape[1] - given
        hidden = batch.ids[row] == objective.policy.mask_id
        assert not hidden[:given].any() and torch.equal(hidden, batch.weight[row] > 0)
        rates = 1 / (batch.weight[row, hidden] * answer * len(ROWS))
        assert torch.allclose(rates, rates[:1]) and (rates <= 1).all()  # one rate per row
        logits = objective.module(input_ids=batch.ids[row : row + 1]).logits[0]
        entropy = F.cross_entropy(logits, batch.targets[row], reduction="none")
        expected += float((entropy[hidden] / rates).sum()) / answer / len(ROWS)
    assert float(objective.loss(batch)[0]) == pytest.approx(expected, rel=1e-5)


FILLED = {"fill": "completion", "completion_length": 9}


@pytest.mark.parametrize(
    ("changes", "length", "learned"),
    [({}, 4, 4), (FILLED, 9, 9), ({**FILLED, "trained_padding": 2}, 9, 6)]
    + [({**FILLED, "trained_padding": 0}, 9, 4), ({"fill": "row"}, 30, 30)]
    + [({"fill": "row", "trained_padding": 1}, 30, 5), ({"ends": ["eot"]}, 3, 3)]
    + [({"ends": []}, 2, 2)],
)
def test_ends_and_padding_are_learned_as_the_options_say(
    tmp_path: Path, changes: dict[str, Any], length: int, learned: int
) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [{"prompt": "a", "completion": "red ring"}])
    given = len(completions(path).source.rows.items[0].prompt)
    objective = completions(path, batch_size=1, max_length=given + 30, **changes)
    seen = set()
    for batch in visits(objective, 60):
        assert batch.ids.shape == (1, given + length)
        seen.update(batch.weight[0].nonzero().flatten().tolist())
        assert (batch.ids[0, given + learned :] == objective.policy.mask_id).all()
    assert seen == set(range(given, given + learned))


def test_a_batch_with_nothing_hidden_has_a_loss_of_zero_with_gradients(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [{"prompt": "a", "completion": [60]}])
    objective = completions(path, batch_size=1)
    empty = next(b for b in visits(objective, 40) if not (b.weight > 0).any())
    loss, gradient = gradients(objective, [empty])
    assert loss == 0.0 and gradient.abs().max() == 0.0
    assert all(p.grad is not None for p in objective.module.parameters())


def test_held_out_examples_are_scored_with_the_same_masks_each_time(data: Path) -> None:
    objective = completions(data, eval_data=str(data), batch_size=4)
    with torch.no_grad():
        first, again = (objective.evaluate(Path(), step) for step in (1, 2))
    assert first == again and first["eval/loss"] > 0


def test_a_conversation_is_learned_as_the_chat_template_writes_it(tmp_path: Path) -> None:
    turns = [("user", "two rings"), ("assistant", " a ring \n"), ("user", "a")]
    turns += [("assistant", "red")]
    messages = [{"role": role, "content": content} for role, content in turns]
    path = write_rows(tmp_path / "rows.jsonl", [{"messages": messages}])
    objective = completions(path, turns="all", ends=["eot"])
    template = objective.text.tokenizer.apply_chat_template
    for example, count in zip(objective.source.rows.items, (2, 4), strict=True):
        whole = ids(objective, str(template(messages[:count], tokenize=False)))
        row = [*example.prompt.tolist(), *example.completion.tolist()]
        assert row == whole[: len(row)]
        header = template(messages[: count - 1], tokenize=False, add_generation_prompt=True)
        assert example.prompt.tolist() == ids(objective, str(header))
    [last] = completions(path, ends=["eot"]).source.rows.items
    assert torch.equal(last.completion, objective.source.rows.items[1].completion)


def test_what_is_too_long_or_empty_leaves_with_its_row_and_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long = {"prompt": "ring " * 200, "completion": "a"}
    rows = [long, ROWS[0], {"prompt": "a", "completion": ""}, long, ROWS[1]]
    objective = completions(write_rows(tmp_path / "rows.jsonl", rows))
    for example, row in zip(objective.source.rows.items, ROWS, strict=False):
        assert example.completion.tolist()[:-2] == ids(objective, row["completion"])
        assert row["prompt"] in objective.text.tokenizer.decode(example.prompt)
    assert len(objective.source.rows.items) == 2
    assert "2 examples left out, longer than" in caplog.text
    assert "1 examples left out, the completion is empty" in caplog.text
    with pytest.raises(ConfigError, match="nothing to learn"):
        completions(write_rows(tmp_path / "long.jsonl", [long]))


def test_a_cut_completion_has_no_end(data: Path) -> None:
    objective = completions(data, max_length=16, overlong="cut")
    ends = {objective.text.ids["eot"], objective.text.ids["eos"]}
    cut = [
        e for e in objective.source.rows.items if len(e) == 16 and int(e.completion[-1]) not in ends
    ]
    assert cut and all(len(example) <= 16 for example in objective.source.rows.items)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "a"}, "neither 'messages' nor 'completion'"),
        ({"messages": [{"role": "user", "content": "a"}]}, "no message answers"),
        (
            {"prompt": "a", "completion": "b", "image": "data:;base64,AAAA"},
            "has images, and the network",
        ),
        ({"messages": "a"}, "no list of role and content"),
        ({"prompt": "a", "completion": "red <|mdm_mask|>"}, "holds the mask token"),
        ({"prompt": "a", "completion": [10**6]}, "neither text nor a list of token ids"),
        ({"prompt": "a", "completion": [60, 61], "order": [1]}, "for each of the 2 tokens"),
    ],
)
def test_rows_that_are_no_examples_are_named_with_their_line(
    tmp_path: Path, row: dict[str, Any], message: str
) -> None:
    good = {"prompt": "a", "completion": [60], "order": [0]}
    path = write_rows(tmp_path / "rows.jsonl", [good, row])
    with pytest.raises(ConfigError, match=f"line 2.*{message}"):
        completions(path, corruption={"name": "trace"})


@torch.no_grad()
def test_a_recorded_trace_is_replayed_as_the_sampler_wrote_it(data: Path, tmp_path: Path) -> None:
    objective = completions(data)
    policy, prompt = objective.policy, Prompt("0", "text", "two rings")
    settings = SamplerConfig(name="static", steps=6, block_size=4)
    rollout = sample(policy, policy.canvas([prompt], 8), settings, torch.Generator().manual_seed(3))
    response = rollout.canvas.response[0]
    zeros = torch.zeros(1)
    batch = RolloutBatch([prompt], rollout, ["a ring"], zeros, zeros, [(0, 0)], {})
    (tmp_path / "samples").mkdir()
    write_completions(RunDirectory(str(tmp_path)), "words", 1, batch)
    path = tmp_path / "samples" / "completions_words_000001.parquet"
    replayed = completions(path, format="rollouts", corruption={"name": "trace"})
    replayed.module.load_state_dict(objective.module.state_dict())
    [example] = replayed.source.rows.items
    slices, found = len(example.order.unique()), torch.zeros(8)
    for n in range(slices):
        chance = Chance((n + 0.5) / slices, *torch.rand(2, 8))
        view = replayed.source.corruption.corrupt(example.order, chance, replayed.source.options)
        rows = stack_rows([build_row(example, None, view, policy.mask_id, None)], 0)
        logits = replayed.module(input_ids=rows.ids).logits[0, -8:]
        logits[:, policy.mask_id] = -torch.inf  # a sampler never writes it
        logprobs = logits.log_softmax(-1).gather(1, rows.targets[0, -8:, None])[:, 0]
        found = torch.where(rows.weight[0, -8:] > 0, logprobs, found)
    torch.testing.assert_close(found, rollout.logprobs[0, response], rtol=0, atol=1e-5)


def run(data: Path, output: Path, **changes: Any) -> Path:
    """A run of four steps; returns the directory of its model."""
    objective = {"name": "text", **options(data, **changes)}
    values: dict[str, Any] = {"max_steps": 4, "logging_steps": 2, "per_device_train_batch_size": 6}
    values |= {"optimizer": "muon", "learning_rate": 1e-2, "bf16": True}
    values |= objective.pop("training", {})
    train(SFTConfig(output_dir=str(output), objective=objective, **values))
    return output / "final"


def held_out_loss(data: Path, **start: Any) -> float:
    with torch.no_grad():
        return completions(data, eval_data=str(data), **start).evaluate(Path(), 0)["eval/loss"]


@pytest.mark.slow
def test_an_adapter_is_trained_and_saved_as_peft_does_or_merged(data: Path, tmp_path: Path) -> None:
    base = run(data, tmp_path / "base")
    lora = {"r": 4, "lora_alpha": 8, "target_modules": ["q", "k", "v"]}
    start = {"model": str(base), "lora": lora, "modules_to_train": ["norm"]}
    whole = run(data, tmp_path / "whole", **start, training={"optimizer": "adamw"})
    losses = [held_out_loss(data, model=str(model)) for model in (base, whole)]
    assert losses[0] > losses[1]
    config = json.loads((whole / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(base)
    changes = {"optimizer": "adamw", "merge_adapter": True}
    merged = run(data, tmp_path / "merged", **start, training=changes)
    assert (merged / "config.json").exists() and not (merged / "adapter_config.json").exists()
    loss = held_out_loss(data, model=str(merged))
    assert loss == pytest.approx(losses[1], rel=1e-5)


def test_a_dry_run_knows_the_network_that_is_trained(data: Path) -> None:
    trained = completions(data)
    outline, words = Completions.outline(trained.config)
    assert outline is not None
    sizes = [{n: p.shape for n, p in one.named_parameters()} for one in (outline, trained.module)]
    assert sizes[0] == sizes[1] and words == f"6 completions of {data}"
    away = CompletionConfig(**options(data, model="GSAI-ML/LLaDA-8B-Base"))
    assert Completions.outline(away) == (None, f"completions of {data}, of which one row is read")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"corruption": {"name": "randon"}}, "Did you mean 'random'"),
        ({"corruption": {"name": "semi_ar", "block_size": 0}}, "objective.corruption.block_size"),
        (
            {"corruption": {"name": "block"}, "fill": "row", "trained_padding": 0},
            "objective.trained_padding",
        ),
    ],
)
def test_settings_that_cannot_train_are_named(data: Path, change: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CompletionConfig(**options(data, **change))
