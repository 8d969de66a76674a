"""Supervised fine-tuning on completions: what is learned, with which weight, in any batch."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mmrl.config import ConfigError, component, load_config
from mmrl.objectives.corruptions.corruption import Chance
from mmrl.objectives.packed_rows import Rows, first_fit, lay_out
from mmrl.objectives.text import CompletionConfig, Completions, piece
from mmrl.objectives.text_examples import Example
from mmrl.samplers import SamplerConfig, sample
from mmrl.sft import SFTConfig, train
from mmrl.types import Prompt
from models import load_policy
from tests.mmrl.objectives.completions import ROWS, SIZES, completions, options, write_rows

ROOT = Path(__file__).resolve().parents[3]
CORRUPTIONS: list[dict[str, Any]] = [
    {"name": "random"},
    {"name": "semi_ar", "block_size": 4},
    {"name": "block", "block_size": 4},
    {"name": "left_to_right"},
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six prompts with completions of different lengths."""
    return write_rows(tmp_path_factory.mktemp("rows") / "rows.jsonl")


def visits(objective: Completions, count: int) -> list[Rows]:
    return [objective.batch(step, 0, 1) for step in range(count)]


def ids(objective: Completions, text: str) -> list[int]:
    return objective.text.tokenizer(text, add_special_tokens=False)["input_ids"]


def example_of(objective: Completions, batch: Rows, row: int) -> Example:
    """The example that a row holds."""
    ids = batch.targets[row, batch.piece[row] >= 0].tolist()
    whole = [[*e.prompt.tolist(), *e.completion.tolist()] for e in objective.examples]
    return objective.examples[next(n for n, e in enumerate(whole) if e == ids[: len(e)])]


def gradients(objective: Completions, batches: list[Rows]) -> tuple[float, Tensor]:
    """Mean loss of batches and its gradient, as one vector."""
    objective.module.zero_grad()
    total = torch.zeros(())
    for batch in batches:
        loss = objective.loss(batch)[0] / len(batches)
        loss.backward()
        total += loss.detach()
    grads = [p.grad for p in objective.module.parameters()]
    return float(total), torch.cat([g.flatten() for g in grads if g is not None])


def test_a_dry_run_knows_the_network_that_is_trained(data: Path) -> None:
    trained = completions(data)
    outline, words = Completions.outline(trained.config)
    assert outline is not None
    sizes = [{n: p.shape for n, p in one.named_parameters()} for one in (outline, trained.module)]
    assert sizes[0] == sizes[1] and words == f"6 completions of {data}"
    away = CompletionConfig(**options(data, tokenizer="", model="owner/name"))
    assert Completions.outline(away) == (None, f"completions of {data}")


@pytest.mark.parametrize("corruption", CORRUPTIONS, ids=lambda c: c["name"])
def test_an_example_counts_the_same_packed_or_alone_in_any_batch_and_on_any_rank(
    data: Path, corruption: dict[str, Any]
) -> None:
    whole = completions(data, corruption=corruption)
    loss, gradient = gradients(whole, [whole.batch(0, 0, 1)])
    packed = completions(data, corruption=corruption, packing=True)
    rows = packed.batch(0, 0, 1)
    assert len(rows) < len(ROWS) and not rows.simple
    alone = completions(data, batch_size=1, corruption=corruption)
    ranks = completions(data, batch_size=3, corruption=corruption, packing=True)
    others = [
        (packed, [rows]),
        (alone, visits(alone, len(ROWS))),
        (ranks, [ranks.batch(0, rank, 2) for rank in range(2)]),
    ]
    for objective, batches in others:
        other, slope = gradients(objective, batches)
        assert other == pytest.approx(loss, rel=1e-5)
        torch.testing.assert_close(slope, gradient, rtol=1e-3, atol=1e-6)


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


def test_every_completion_token_is_learned_with_its_ends_and_nothing_of_the_prompt(
    data: Path,
) -> None:
    objective = completions(data)
    eot, eos = objective.text.ids["eot"], objective.text.ids["eos"]
    learned: dict[tuple[int, ...], set[int]] = {}
    for batch in visits(objective, 40):
        for row in range(len(batch)):
            targets = tuple(batch.targets[row, batch.piece[row] >= 0].tolist())
            scored = batch.weight[row].nonzero().flatten().tolist()
            learned.setdefault(targets, set()).update(scored)
            assert targets[-2:] == (eot, eos)
    assert len(learned) == len(ROWS)
    for example in objective.examples:
        ids = (*example.prompt.tolist(), *example.completion.tolist())
        assert learned[ids] == set(range(len(example.prompt), len(example)))


def test_each_visit_of_an_example_draws_new_masks(data: Path) -> None:
    objective = completions(data, batch_size=1)
    first, again = (
        [batch for batch in (objective.batch(step, 0, 1) for step in epoch)]
        for epoch in (range(6), range(6, 12))
    )
    pairs = [(a, b) for a in first for b in again if torch.equal(a.targets, b.targets)]
    assert len(pairs) == len(ROWS)
    assert any(not torch.equal(a.ids, b.ids) for a, b in pairs)


@pytest.mark.parametrize(
    ("changes", "length", "learned"),
    [
        ({}, 14, 4),
        ({"fill": "completion", "completion_length": 9}, 19, 9),
        ({"fill": "completion", "completion_length": 9, "trained_padding": 2}, 19, 6),
        ({"fill": "completion", "completion_length": 9, "trained_padding": 0}, 19, 4),
        ({"fill": "row", "max_length": 40}, 40, 30),
        ({"fill": "row", "max_length": 40, "trained_padding": 1}, 40, 5),
        ({"ends": ["eot"]}, 13, 3),
        ({"ends": []}, 12, 2),
    ],
)
def test_ends_and_padding_are_learned_as_the_options_say(
    tmp_path: Path, changes: dict[str, Any], length: int, learned: int
) -> None:
    row = {"prompt": [60] * 10, "completion": "red ring"}
    objective = completions(write_rows(tmp_path / "rows.jsonl", [row]), batch_size=1, **changes)
    seen = set()
    for batch in visits(objective, 60):
        assert batch.ids.shape == (1, length)
        seen.update(batch.weight[0].nonzero().flatten().tolist())
        assert (batch.ids[0, 10 + learned :] == objective.policy.mask_id).all()
    assert seen == set(range(10, 10 + learned))


def test_token_normalisation_divides_by_the_mean_length_of_the_data(data: Path) -> None:
    each, mean = (completions(data, normalization=name) for name in ("sequence", "token"))
    rows, scaled = each.batch(0, 0, 1), mean.batch(0, 0, 1)
    lengths = [len(example.completion) for example in each.examples]
    assert mean.mean_length == pytest.approx(sum(lengths) / len(lengths))
    for row in range(len(rows)):
        own = len(example_of(each, rows, row).completion)
        assert mean.mean_length and torch.allclose(
            rows.weight[row] * own, scaled.weight[row] * mean.mean_length
        )


def test_a_conversation_is_learned_as_the_chat_template_writes_it(tmp_path: Path) -> None:
    turns = [
        ("user", "two rings"),
        ("assistant", " a ring \n"),
        ("user", "a"),
        ("assistant", "red"),
    ]
    messages = [{"role": role, "content": content} for role, content in turns]
    path = write_rows(tmp_path / "rows.jsonl", [{"messages": messages}])
    objective = completions(path, turns="all", ends=["eot"])
    template = objective.text.tokenizer.apply_chat_template
    for example, count in zip(objective.examples, (2, 4), strict=True):
        whole = ids(objective, str(template(messages[:count], tokenize=False)))
        row = [*example.prompt.tolist(), *example.completion.tolist()]
        assert row == whole[: len(row)]
        header = template(messages[: count - 1], tokenize=False, add_generation_prompt=True)
        assert example.prompt.tolist() == ids(objective, str(header))
    [last] = completions(path, ends=["eot"]).examples
    assert torch.equal(last.completion, objective.examples[1].completion)


def test_token_ids_are_taken_as_they_are(tmp_path: Path) -> None:
    row = {"prompt": [40, 41], "completion": [60, 61, 62]}
    [example] = completions(write_rows(tmp_path / "rows.jsonl", [row])).examples
    assert (example.prompt.tolist(), example.completion.tolist()) == ([40, 41], [60, 61, 62])


def test_what_is_too_long_or_empty_leaves_with_its_row_and_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long = {"prompt": "ring " * 200, "completion": "a"}
    rows = [long, ROWS[0], {"prompt": "a", "completion": ""}, long, ROWS[1]]
    objective = completions(write_rows(tmp_path / "rows.jsonl", rows))
    for example, row in zip(objective.examples, ROWS, strict=False):
        assert example.completion.tolist()[:-2] == ids(objective, row["completion"])
        assert row["prompt"] in objective.text.tokenizer.decode(example.prompt)
    assert len(objective.examples) == 2
    assert "2 examples left out, longer than" in caplog.text
    assert "1 examples left out, the completion is empty" in caplog.text
    with pytest.raises(ConfigError, match="nothing to learn"):
        completions(write_rows(tmp_path / "long.jsonl", [long]))


def test_a_cut_completion_has_no_end(data: Path) -> None:
    objective = completions(data, max_length=16, overlong="cut")
    ends = {objective.text.ids["eot"], objective.text.ids["eos"]}
    cut = [e for e in objective.examples if len(e) == 16 and int(e.completion[-1]) not in ends]
    assert cut and all(len(example) <= 16 for example in objective.examples)


@torch.no_grad()
def test_a_recorded_trace_is_replayed_as_the_sampler_wrote_it(data: Path, tmp_path: Path) -> None:
    objective = completions(data)
    policy, prompt = objective.policy, Prompt("0", "text", "two rings")
    settings = SamplerConfig(name="static", steps=6, block_size=4)
    rollout = sample(policy, policy.canvas([prompt], 8), settings, torch.Generator().manual_seed(3))
    response = rollout.canvas.response[0]
    row = {
        "prompt": "two rings",
        "completion": rollout.canvas.tokens[0, response].tolist(),
        "order": rollout.written_at[0, response].tolist(),
    }
    path = write_rows(tmp_path / "trace.jsonl", [row])
    replayed = completions(path, corruption={"name": "trace"})
    replayed.module.load_state_dict(objective.module.state_dict())
    [example] = replayed.examples
    slices, found = len(example.order.unique()), torch.zeros(8)
    for n in range(slices):
        view = replayed.corruption(example.order, Chance((n + 0.5) / slices, *torch.rand(2, 8)))
        rows = lay_out([piece(example, view, 0, 1.0, policy.mask_id)], 0, 0)
        logits = replayed.module(input_ids=rows.ids).logits[0, -8:]
        logits[:, policy.mask_id] = -torch.inf  # a sampler never writes it
        logprobs = logits.log_softmax(-1).gather(1, rows.targets[0, -8:, None])[:, 0]
        found = torch.where(rows.weight[0, -8:] > 0, logprobs, found)
    torch.testing.assert_close(found, rollout.logprobs[0, response], rtol=0, atol=1e-5)


@torch.no_grad()
def test_blocks_are_those_of_the_sampler_whatever_the_length_of_the_prompt(data: Path) -> None:
    objective = completions(data, corruption={"name": "semi_ar", "block_size": 4})
    for text in ("a", "two rings", "a large red cross left of a circle"):
        canvas = objective.policy.canvas([Prompt("0", "text", text)], 8)
        settings = SamplerConfig(name="static", steps=4, block_size=4)
        rollout = sample(objective.policy, canvas, settings, torch.Generator().manual_seed(0))
        written = rollout.written_at[0, canvas.response[0]]
        for block in range(2):
            chance = Chance((block + 0.5) / 2, torch.ones(8), torch.zeros(8))
            view = objective.corruption(torch.arange(8), chance)
            assert torch.equal(view.weight > 0, written // 2 == block)
            assert torch.equal(view.hidden, written >= 2 * block)


@torch.no_grad()
def test_a_copied_block_knows_nothing_of_itself_or_of_what_follows(data: Path) -> None:
    objective = completions(data, batch_size=1, corruption={"name": "block", "block_size": 4})
    batch = next(b for b in visits(objective, 20) if int(b.block.max()) > 1)
    logits = [predictions(objective, batch)]
    clean = (batch.block >= 1) & ~batch.copy
    batch.ids = torch.where(clean, batch.ids + 1, batch.ids)
    logits.append(predictions(objective, batch))
    same = (logits[0] == logits[1]).all(-1)
    assert same[batch.copy & (batch.block <= 1)].all()
    assert not same[batch.copy & (batch.block > 1)].any()


def predictions(objective: Completions, batch: Rows) -> Tensor:
    mask, places = batch.attention_mask, batch.position_ids
    return objective.module(input_ids=batch.ids, attention_mask=mask, position_ids=places).logits


def test_a_batch_in_which_nothing_is_hidden_has_a_loss_of_zero_with_gradients(
    tmp_path: Path,
) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [{"prompt": "a", "completion": [60]}])
    objective = completions(path, batch_size=1)
    empty = next(b for b in visits(objective, 40) if not (b.weight > 0).any())
    loss, gradient = gradients(objective, [empty])
    assert loss == 0.0 and gradient.abs().max() == 0.0
    assert all(p.grad is not None for p in objective.module.parameters())


def test_embeddings_learn_too(data: Path) -> None:
    objective = completions(data)
    gradients(objective, [objective.batch(0, 0, 1)])
    embed = objective.policy.network.embed.weight.grad
    assert embed is not None and float(embed[objective.policy.mask_id].abs().sum()) > 0


def test_the_global_generator_is_left_alone(data: Path) -> None:
    before = torch.get_rng_state()
    objective = completions(data)
    objective.loss(objective.batch(0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())


def test_held_out_examples_are_scored_with_the_same_masks_each_time(data: Path) -> None:
    objective = completions(data, eval_data=str(data), eval_examples=4, batch_size=3)
    with torch.no_grad():
        first, again = (objective.evaluate(Path(), step) for step in (1, 2))
    assert first == again and first["eval/loss"] > 0 and len(objective.eval_examples) == 4


def run(data: Path, output: Path, **changes: Any) -> Path:
    """A run of four steps; returns the directory of its model."""
    objective = {"name": "text", **options(data), "network": SIZES, **changes}
    values: dict[str, Any] = {"max_steps": 4, "logging_steps": 2, "per_device_train_batch_size": 6}
    values |= {"optimizer": "muon", "learning_rate": 1e-2, "bf16": True}
    train(SFTConfig(output_dir=str(output), objective=objective, **values))
    return output / "final"


def held_out_loss(data: Path, **start: Any) -> float:
    with torch.no_grad():
        return completions(data, eval_data=str(data), **start).evaluate(Path(), 0)["eval/loss"]


def test_a_new_network_trains_packed_is_saved_as_llada_and_can_be_continued(
    data: Path, tmp_path: Path
) -> None:
    changes = {"packing": True, "gradient_checkpointing": True}
    first = run(data, tmp_path / "first", **changes)
    raw = json.loads((first / "config.json").read_text())
    assert (raw["model_type"], raw["architectures"]) == ("llada", ["LLaDAModelLM"])
    policy = load_policy(first, vq=None)
    canvas = policy.canvas([Prompt("0", "text", "two rings")], 4)
    settings = SamplerConfig(name="static", steps=2)
    rollout = sample(policy, canvas, settings, torch.Generator().manual_seed(0))
    assert len(policy.decode(rollout.canvas, [Prompt("0", "text", "")])) == 1
    start = {"model": str(first), "tokenizer": ""}
    second = run(data, tmp_path / "second", **changes, **start, attn_implementation="eager")
    losses = [held_out_loss(data), held_out_loss(data, **start)]
    losses.append(held_out_loss(data, **{**start, "model": str(second)}))
    assert losses[0] > losses[1] > losses[2]


def test_rows_take_the_longest_first_and_never_more_than_they_hold() -> None:
    lengths = [3, 9, 5, 1, 4, 2]
    rows = first_fit(lengths, 10)
    assert rows == [[1, 3], [2, 4], [0, 5]]
    assert first_fit(lengths, 0) == [[1], [2], [4], [0], [5], [3]]


@pytest.mark.parametrize("name", ["llada_8b", "text_llada"])
def test_the_recipes_are_lladas_objective(name: str) -> None:
    recipe = load_config(SFTConfig, [f"config={ROOT / 'configs' / 'sft' / name}.yaml"])
    settings = component({"text": Completions}, recipe.objective, where="objective")
    assert settings.corruption == {"name": "random"} and settings.normalization == "sequence"
    assert settings.ends == ["eot", "eos"] and settings.trained_padding is None
    assert settings.fill != "none"  # a sampler's canvas is longer than what is written on it


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": ""}, "objective.data"),
        ({"tokenizer": ""}, "objective.model, objective.tokenizer"),
        ({"model": "somewhere"}, "objective.model, objective.tokenizer"),
        ({"corruption": {"name": "randon"}}, "Did you mean 'random'"),
        ({"corruption": {"name": "block", "size": 4}}, "objective.corruption.size"),
        ({"corruption": {"name": "semi_ar", "block_size": 0}}, "objective.corruption.block_size"),
        ({"ends": ["eod"]}, "objective.ends"),
        ({"fill": "completion"}, "objective.completion_length"),
        ({"completion_length": 8}, "objective.completion_length"),
        ({"trained_padding": -1}, "objective.trained_padding"),
        (
            {"corruption": {"name": "block"}, "fill": "row", "trained_padding": 0},
            "objective.trained_padding",
        ),
        ({"normalization": "token", "fill": "batch"}, "objective.normalization"),
    ],
)
def test_settings_that_cannot_train_are_named(
    data: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        CompletionConfig(**options(data, **change))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "a"}, "neither 'messages' nor 'completion'"),
        ({"messages": [{"role": "user", "content": "a"}]}, "no message answers"),
        ({"messages": "a"}, "no list of role and content"),
        ({"prompt": "a", "completion": "red <|mdm_mask|>"}, "holds the mask token"),
        ({"prompt": "a", "completion": [10**6]}, "neither text nor a list of token ids"),
        ({"prompt": "a", "completion": [60, 61]}, "'order' must hold one step"),
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
