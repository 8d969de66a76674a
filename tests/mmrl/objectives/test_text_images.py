"""Answers about images: what is trained is what is sampled, and what learns from it."""

import json
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmrl.config import ConfigError
from mmrl.data.images import LazyImage
from mmrl.data.prompts import DataConfig, load_prompts
from mmrl.generation.causal.images import ImageTensors
from mmrl.models import load_policy
from mmrl.models.network.vision import Vision
from mmrl.objectives.scored_rows import Rows
from mmrl.objectives.text import Completions
from mmrl.objectives.text_examples import Example
from mmrl.samplers import SamplerConfig, sample
from mmrl.sft import SFTConfig, train
from tests.mmrl.objectives.completions import gradients, visits, write_rows
from tests.mmrl.objectives.image_completions import ASKED, ROWS, noise, seeing, settings, url
from tests.mmrl.objectives.test_scored_rows import CORRUPTIONS
from tests.mmrl.runs import metrics
from tests.models.causal import SEEING, write_qwen_vl

SHAPES = Path(__file__).resolve().parents[3] / "datasets" / "shapes" / "checkpoints"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four questions about pictures of several sizes."""
    return write_rows(tmp_path_factory.mktemp("rows") / "rows.jsonl", ROWS)


def row_of(batch: Rows, words: Tensor) -> int:
    """The row that begins with these ids."""
    starts = [torch.equal(row[: len(words)], words) for row in batch.targets]
    return starts.index(True)


def vision_of(objective: Completions) -> Vision:
    vision = objective.policy.network.vision
    assert isinstance(vision, Vision)
    return vision


@torch.no_grad()
@pytest.mark.parametrize("n", [4, 6])
def test_a_trained_row_is_the_sampled_canvas_with_the_answer_and_the_end_of_its_turn(
    data: Path, n: int
) -> None:
    objective = seeing(data, fill="completion", completion_length=n)
    eot = objective.text.ids["eot"]
    batch = objective.batch(0, 0, 1)
    assert batch.features is not None and batch.features.source is not None
    trained = vision_of(objective)(batch.features.source, batch.features.images).rows
    for prompt in load_prompts(str(data), "image_to_text", DataConfig()):
        canvas = objective.policy.canvas([prompt], n)
        [tokens], [response] = canvas.tokens, canvas.response
        assert canvas.features is not None and canvas.features.embeddings is not None
        row = row_of(batch, tokens[~response])
        assert int((batch.real[row]).sum()) == len(tokens)
        answer = objective.text.tokenizer(prompt.answer)["input_ids"]
        written = batch.targets[row, : len(tokens)][response].tolist()
        assert written == [*answer, *[eot] * (n - len(answer))]
        assert canvas.stop_ids[0] == eot  # what the sampler puts behind the end
        at = batch.features.at[row, : len(tokens)]
        assert torch.equal(at >= 0, canvas.features.at[0] >= 0)
        shown = trained[at[at >= 0]]
        torch.testing.assert_close(shown, canvas.features.embeddings, rtol=0, atol=1e-5)


def test_answers_about_images_have_no_end_that_is_never_sampled_and_words_keep_theirs(
    tmp_path: Path,
) -> None:
    rows = [ROWS[0], {"question": "how many", "answer": "red"}]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    objective = seeing(path, fill="blocks", completion_length=4)
    eot, eos = objective.text.ids["eot"], objective.text.ids["eos"]
    batch = objective.batch(0, 0, 1)
    ends = {tuple(batch.targets[row, batch.real[row]][-3:].tolist()) for row in range(len(batch))}
    assert ends == {(eot, eot, eot), (eot, eos, eos)}


def test_pictures_are_opened_for_their_batch_once_each_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    was = LazyImage.open
    monkeypatch.setattr(LazyImage, "open", lambda picture: opened.append(1) or was(picture))
    turns = [("user", "how many?"), ("assistant", "2"), ("user", "is"), ("assistant", "yes")]
    messages = [{"role": role, "content": content} for role, content in turns]
    path = write_rows(tmp_path / "rows.jsonl", [{"messages": messages, "image": ROWS[1]["image"]}])
    objective = seeing(path, batch_size=2, turns="all")
    assert len(objective.source.rows.items) == 2 and not opened
    batch = objective.batch(0, 0, 1)
    assert len(opened) == 1 and batch.features is not None and len(batch.features.images) == 1
    assert batch.features.source is not None and batch.features.source.dtype == torch.uint8


@pytest.mark.parametrize("corruption", CORRUPTIONS, ids=lambda c: c["name"])
def test_an_example_counts_the_same_alone(data: Path, corruption: dict[str, Any]) -> None:
    whole = seeing(data, corruption=corruption)
    loss, gradient = gradients(whole, [whole.batch(0, 0, 1)])
    alone = seeing(data, batch_size=1, corruption=corruption)
    other, slope = gradients(alone, visits(alone, len(ROWS)))
    assert other == pytest.approx(loss, rel=1e-4)
    torch.testing.assert_close(slope, gradient, rtol=1e-2, atol=1e-5)


def run(data: Path, output: Path, **changes: Any) -> Path:
    """A run of four steps; returns the directory of its model."""
    objective = {"name": "text", **settings(data, **changes)}
    values: dict[str, Any] = {"max_steps": 4, "logging_steps": 2, "per_device_train_batch_size": 4}
    values |= {"optimizer": "muon", "learning_rate": 1e-2, "bf16": True}
    train(SFTConfig(output_dir=str(output), objective=objective, **values))
    return output / "final"


def test_a_new_network_is_saved_as_llada_v_answers_and_can_be_continued(
    data: Path, tmp_path: Path
) -> None:
    first = run(data, tmp_path / "first", attn_implementation="eager")
    raw = json.loads((first / "config.json").read_text())
    assert (raw["model_type"], raw["architectures"]) == ("llava_llada", ["LlavaLLaDAModelLM"])
    assert raw["image_aspect_ratio"] == "anyres_max_4" and raw["mm_hidden_size"] == 12
    assert raw["vision"]["num_hidden_layers"] == 3  # of which the last is not built
    policy = load_policy(first, vq=None, max_prompt_length=100)
    assert len(vision_of_policy(policy.network.vision).tower.encoder.layers) == 2
    prompts = load_prompts(str(data), "image_to_text", DataConfig())
    settings_ = SamplerConfig(name="static", steps=2, eos="leave")
    rollout = sample(policy, policy.canvas(prompts, 4), settings_, torch.Generator().manual_seed(0))
    assert len(policy.decode(rollout.canvas, prompts)) == len(prompts)
    second = run(data, tmp_path / "second", model=str(first), train_vision_tower=True)
    log = (tmp_path / "second" / "train.log").read_text()
    assert "trained: vision.tower" in log and "trained: total" in log
    losses = [
        held_out(data, **start) for start in ({}, *({"model": str(p)} for p in (first, second)))
    ]
    assert losses[0] > losses[1] > losses[2]


def vision_of_policy(module: nn.Module | None) -> Vision:
    assert isinstance(module, Vision)
    return module


def held_out(data: Path, **start: Any) -> float:
    with torch.no_grad():
        return seeing(data, eval_data=str(data), **start).evaluate(Path(), 0)["eval/loss"]


@torch.no_grad()
@pytest.mark.parametrize("fit", ["crop", "squash"])
def test_a_checkpoint_that_reads_codes_learns_answers_as_they_are_sampled(
    tmp_path: Path, fit: Literal["crop", "squash"]
) -> None:
    model = {"model": str(SHAPES / "mmada"), "vq": str(SHAPES / "magvit")}
    path, wanted = write_rows(tmp_path / "rows.jsonl", ROWS[:2]), {**model, "image_fit": fit}
    objective = seeing(path, batch_size=2, fill="completion", completion_length=8, **wanted)
    policy = load_policy(model["model"], model["vq"], image_fit=fit)
    batch, eos = objective.batch(0, 0, 1), objective.text.ids["eos"]
    assert batch.features is None and float(objective.loss(batch)[0]) > 0
    for prompt in load_prompts(str(path), "image_to_text", DataConfig()):
        canvas = policy.canvas([prompt], 8)
        given = canvas.tokens[~canvas.response]
        row = row_of(batch, given)
        answer = objective.text.tokenizer(prompt.answer)["input_ids"]
        end = [*answer, objective.text.ids["eot"], *[eos] * 8]
        assert batch.targets[row, len(given) : len(given) + 8].tolist() == end[:8]
    for picture in (ROWS[3], {**ROWS[0], "question": "<image> <image>"}):
        with pytest.raises(ConfigError, match="reads exactly one image"):
            seeing(write_rows(tmp_path / "more.jsonl", [picture]), **model)
    with pytest.raises(ConfigError, match="has images, and the network cannot see"):
        seeing(path, model=model["model"])


CAUSAL = {"name": "causal"}


@pytest.mark.parametrize("name", SEEING)
def test_the_loss_is_the_cross_entropy_that_transformers_has(name: str, tmp_path: Path) -> None:
    model = write_qwen_vl(tmp_path / "model", name)
    data = write_rows(tmp_path / "rows.jsonl", ROWS)
    objective = seeing(data, model=str(tmp_path / "model"), corruption=CAUSAL)
    policy, expected = objective.policy, []
    for prompt in load_prompts(str(data), "image_to_text", DataConfig()):
        answer = objective.text.tokenizer(prompt.answer)["input_ids"]
        answer = torch.tensor([*answer, objective.text.ids["eos"]])
        canvas: Any = policy.canvas([prompt], len(answer))
        row = torch.cat((canvas.tokens[:, : -len(answer)], answer[None]), 1)
        features = canvas.features
        assert isinstance(features, ImageTensors)
        with torch.no_grad():
            logits = model(
                input_ids=row,
                mm_token_type_ids=(features.at >= 0).int(),
                pixel_values=torch.cat(features.pixels),
                image_grid_thw=torch.tensor(features.grids),
            ).logits[0, :, : objective.text.vocab[1]]
        expected.append(float(F.cross_entropy(logits[-len(answer) - 1 : -1], answer)))
    found, gradient = gradients(objective, visits(objective, 1))
    assert found == pytest.approx(sum(expected) / 4, abs=1e-5) and bool(gradient.any())


def test_a_run_learns_from_images_and_words_and_saves_what_can_be_loaded(tmp_path: Path) -> None:
    write_qwen_vl(tmp_path / "model", "qwen3_vl")
    words = [{"question": "how many", "answer": "red"}]
    data = write_rows(tmp_path / "rows.jsonl", [*ROWS, *words, *words])
    changes = {"model": str(tmp_path / "model"), "corruption": CAUSAL, "eval_data": str(data)}
    options: dict[str, Any] = {"max_steps": 6, "logging_steps": 1, "eval_steps": 3, "save_steps": 0}
    config = SFTConfig(
        output_dir=str(tmp_path / "run"),
        objective={"name": "text", **settings(data, **changes)},
        per_device_train_batch_size=3,
        learning_rate=1e-2,
        bf16=False,
        **options,
    )
    train(config)
    losses = [line["eval/loss"] for line in metrics(tmp_path / "run") if "eval/loss" in line]
    assert losses[-1] < losses[0]
    policy = load_policy(tmp_path / "run" / "final")
    [prompt] = load_prompts(str(data), "image_to_text", DataConfig())[3:4]
    assert len(policy.canvas([prompt])) == 1


def same(one: Example, other: Example) -> bool:
    pixels = [[list(image.tobytes()) for image in example.images] for example in (one, other)]
    tensors = (("prompt", "completion", "order"), ("cuts", "rows", "trained", "padding"))
    return (
        all(torch.equal(getattr(one, name), getattr(other, name)) for name in tensors[0])
        and all(getattr(one, name) == getattr(other, name) for name in tensors[1])
        and pixels[0] == pixels[1]
    )


def example(folder: Path, row: Any, name: str = "rows.jsonl", **changes: Any) -> Example:
    path = folder / name
    path.write_text(json.dumps([row]) if name.endswith(".json") else json.dumps(row))
    [only] = seeing(path, **changes).source.rows.items
    return only


def turn(content: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": content}


def system() -> dict[str, Any]:
    from mmrl.models.layouts.image_chat import SYSTEM

    return turn(SYSTEM, "system")


def test_every_form_of_a_row_is_the_same_example(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(noise(1))
    question, answer = ASKED[0], "3"
    wanted = example(tmp_path, {"question": question, "answer": answer, "image": url(1)})
    assert len(wanted.images) == 1 and wanted.rows > 0
    parts = [{"type": "image"}, {"type": "text", "text": question}]
    own = [{"type": "image", "url": url(1)}, parts[1]]
    said = turn(f" {answer}\n", "assistant")
    messages = [
        {"messages": [system(), turn(parts), said], "images": [url(1)]},
        {"messages": [system(), turn(own), said]},
        {"messages": [system(), turn(question), said], "image": "pictures/a.png"},
        {"messages": [system(), turn(f"<image>\n{question}"), said], "image": url(1)},
        {"question": f"<image>\n{question}", "answer": answer, "image": url(1)},
        {"question": question, "answer": "3", "image": "pictures/a.png"},
        {"messages": [system(), turn(parts)], "answer": answer, "image": url(1)},
    ]
    for row in messages:
        assert same(example(tmp_path, row), wanted), row
    below = {"question": question, "answer": answer, "image": "a.png"}
    root = str(tmp_path / "pictures")
    assert same(example(tmp_path, below, image_root=root), wanted)


def shown(objective: Completions) -> list[int]:
    return [len(example.images) for example in objective.source.rows.items]


@pytest.mark.parametrize("marked", [False, True])
def test_an_earlier_answer_sees_the_pictures_shown_until_then(tmp_path: Path, marked: bool) -> None:
    part = {"type": "image"}
    asked: list[Any] = ["one", [part, {"type": "text", "text": "two"}], [part]]
    if marked:
        asked = ["one", "<image>\ntwo", "three <image>"]
    turns = [t for words in asked for t in (turn(words), turn("yes", "assistant"))]
    path = write_rows(tmp_path / "rows.jsonl", [{"messages": turns, "images": [url(0), url(1)]}])
    objective = seeing(path, turns="all")
    assert shown(objective) == [0, 1, 2] and shown(seeing(path)) == [2]
    last = objective.source.rows.items[-1]
    assert [image.size for image in last.images] == [(8, 8), (20, 9)]
    assert len(last.cuts) == 2 and last.cuts[0] < last.cuts[1]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "<image> <image>", "answer": "3"}, "has 1 images and 2 marks"),
        (
            {"messages": [turn("a"), turn([{"type": "image"}], "assistant")]},
            "the last answer holds an image",
        ),
    ],
)
def test_rows_that_are_no_examples_are_named_with_their_line(
    tmp_path: Path, row: dict[str, Any], message: str
) -> None:
    good = {"question": "a", "answer": "b", "image": url(0)}
    path = write_rows(tmp_path / "rows.jsonl", [good, {"image": url(0), **row}])
    with pytest.raises(ConfigError, match=f"line 2.*{message}"):
        seeing(path)
