"""The mixed masked-token loss: each part against its formula, computed over all positions."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Generator, Tensor

from mmrl.data.prompts import DataConfig, load_prompts
from mmrl.objectives.masked import Masked, draw_cosine_mask
from mmrl.objectives.options import CompletionsConfig, MaskedConfig, QuestionsConfig
from mmrl.objectives.scored_rows import Rows
from mmrl.types import Prompt
from tests.mmrl.starts import SHAPES, write_drawing
from tests.pictures import write_images

PROMPTS = ["a red ring", "a circle and a large blue cross", "two rings", "a square"]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A parquet of four images with their prompts."""
    images = [Image.new("RGB", (32, 32), color) for color in ("red", "blue", "tan", "teal")]
    return write_images(tmp_path_factory.mktemp("pairs") / "pairs.parquet", images, PROMPTS)


def options(pairs: Path, **changes: Any) -> dict[str, Any]:
    values = {"data": str(pairs), "vq": str(SHAPES / "checkpoints" / "magvit"), "image_size": 32}
    values |= {"max_prompt_length": 24, "save_dtype": "float32"}
    if "model" not in changes:
        values |= {"model": write_drawing(pairs.parent / "start"), "new_weights": True}
    return {**values, **changes}


def objective(pairs: Path, batch_size: int = 4, **changes: Any) -> Masked:
    return Masked(MaskedConfig(**options(pairs, **changes)), seed=0, batch_size=batch_size)


def entropies(masked: Masked, name: str, part: Rows) -> Tensor:
    """[B, L] cross-entropy of every position, over the tokens that the part may predict."""
    logits = masked.module(input_ids=part.ids, attention_mask=part.attention_mask).logits
    first, last = masked.vocabs.get(name, (0, logits.shape[-1]))
    targets = (part.targets - first).clamp(0, last - first - 1)
    entropy = F.cross_entropy(
        logits[..., first:last].flatten(0, 1), targets.flatten(), reduction="none"
    )
    return entropy.view(part.ids.shape)


@torch.no_grad()
def test_image_tokens_are_scored_by_the_mean_over_those_hidden(pairs: Path) -> None:
    masked = objective(pairs)
    batch = masked.batch(0, 0, 1)
    [(name, part)] = batch.items()
    loss, _ = masked.loss(batch)
    hidden = part.weight > 0
    expected = entropies(masked, name, part)[hidden].mean()
    assert loss == pytest.approx(float(expected), rel=1e-5)
    assert (part.ids[hidden] == masked.policy.mask_id).all()
    assert torch.equal(part.ids[~hidden], part.targets[~hidden])
    assert hidden[:, -65:-1].sum() == hidden.sum()  # image positions only


@torch.no_grad()
@pytest.mark.parametrize("name", ["image_to_text", "text"])
def test_text_tokens_weigh_the_inverse_of_their_rate(pairs: Path, name: str) -> None:
    masked = objective(pairs, shares={name: 1.0}, weights={name: 0.5})
    batch = masked.batch(3, 0, 1)
    part, hidden = batch[name], batch[name].ids == masked.policy.mask_id
    loss, metrics = masked.loss(batch)
    weight = torch.where(hidden, part.weight, 0.0)
    expected = (entropies(masked, name, part) * weight).sum()
    assert metrics[f"loss/{name}"] == pytest.approx(float(expected), rel=1e-5)
    assert loss == pytest.approx(0.5 * float(expected), rel=1e-5)
    for row, masks in zip(part.weight, hidden, strict=True):
        assert len(row[masks].unique()) <= 1  # one rate per row


def test_the_number_of_hidden_image_tokens_follows_the_cosine() -> None:
    draw = Generator().manual_seed(0)
    counts = draw_cosine_mask(4000, 64, draw).sum(1).double()
    assert counts.min() >= 1 and counts.max() <= 64
    assert float(counts.mean()) == pytest.approx(64 * 2 / torch.pi, rel=0.02)
    raised = draw_cosine_mask(4000, 64, Generator().manual_seed(0), 0.3).sum(1).double()
    assert torch.equal(raised, counts.clamp(min=round(64 * 0.3)))


def test_conditions_are_dropped_at_the_given_share(pairs: Path) -> None:
    def dropped(share: float) -> float:
        masked = objective(pairs, cond_dropout_prob=share)
        parts = [part for step in range(60) for part in masked.batch(step, 0, 1).values()]
        texts = [masked.policy.tokenizer.decode(row) for part in parts for row in part.ids]
        known = [any(prompt in text for prompt in PROMPTS) for text in texts]
        return 1 - sum(known) / len(known)

    assert dropped(0.0) == 0.0 and dropped(1.0) == 1.0
    assert dropped(0.3) == pytest.approx(0.3, abs=0.1)


QUESTIONS = [("what is there?", "a ring"), ("how many?", "2"), ("what color?", "blue")]
SUMS = [("compute 1+2", "1+2=3"), ("compute 2*2*3", "2*2=4\n4*3=12")]
ANSWERS = {"ends": ["eos"], "max_length": 140, "fill": "blocks", "completion_length": 4}


@pytest.fixture(scope="module")
def answers(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Options that put questions and sums in the place of captions."""
    folder = tmp_path_factory.mktemp("answers")
    images = [row["image"] for row in pq.read_table(pairs).to_pylist()]
    questions = [
        {"question": q, "answer": a, "image": images[n % 2]} for n, (q, a) in enumerate(QUESTIONS)
    ]
    pq.write_table(pyarrow.Table.from_pylist(questions), folder / "questions.parquet")
    rows = [json.dumps({"prompt": p, "completion": c}) for p, c in SUMS]
    (folder / "sums.jsonl").write_text("\n".join(rows))
    columns = {"prompt_column": "question", "completion_column": "answer"}
    named = {"data": str(folder / "questions.parquet"), **ANSWERS, **columns}
    return {
        "questions": QuestionsConfig(**named),
        "completions": CompletionsConfig(data=str(folder / "sums.jsonl"), **ANSWERS),
        "shares": {"text_to_image": 0.4, "image_to_text": 0.4, "text": 0.2},
    }


@torch.no_grad()
def test_questions_and_completions_are_trained_as_they_are_sampled(
    pairs: Path, answers: dict[str, Any]
) -> None:
    masked = objective(pairs, batch_size=10, **answers)
    parts = masked.batch(0, 0, 1)
    assert {name: len(part.ids) for name, part in parts.items()} == {
        "text_to_image": 4,
        "image_to_text": 4,
        "text": 2,
    }
    eos = masked.policy.tokenizer.eos_token_id
    config = masked.config.questions
    assert config is not None
    data = DataConfig(columns={"prompt": "question"})
    asked = load_prompts(config.data, "image_to_text", data)
    summed = [Prompt(p, "text", p, answer=c) for p, c in SUMS]
    for name, prompts in (("image_to_text", asked), ("text", summed)):
        part, found = parts[name], set()
        for row, targets in enumerate(part.targets):
            for prompt in prompts:
                answer = masked.policy.tokenizer(prompt.answer)["input_ids"]
                length = -(-(len(answer) + 1) // 4) * 4
                canvas = masked.policy.canvas([prompt], length)
                width = canvas.tokens.shape[1]
                written = [*answer, *[eos] * (length - len(answer))]
                given = canvas.tokens[~canvas.response]
                if torch.equal(targets[: len(given)], given):
                    found.add(prompt.text)
                    assert targets[len(given) : width].tolist() == written
                    assert part.attention_mask is None or part.attention_mask[row].sum() == width
                    assert not part.weight[row, : len(given)].any()
        assert len(found) >= 2, name
    assert masked.vocabs["image_to_text"] == (0, len(masked.policy.tokenizer))
