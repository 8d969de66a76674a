"""Prompts in other words: what is asked for stays, and a small network can learn them."""

import random
from pathlib import Path

import pytest

from mmrl.config import load_config
from mmrl.sft import SFTConfig, train
from tests import by_path
from tests.mmrl.runs import metrics

FOLDER = Path(__file__).resolve().parents[2] / "datasets" / "shapes"
for name in ("render", "prompts", "image_pairs"):
    by_path.load(FOLDER, name)
write = by_path.load(FOLDER, "write_synonyms")
PLAIN = {word: first for first, words in write.SAID.items() for word in words}


def plain(text: str) -> list[str]:
    """The words that painters know for those of a prompt."""
    words = [PLAIN.get(word, word) for word in text.split()]
    return ["a" if word == "an" else word for word in words]


def test_other_words_ask_for_the_same() -> None:
    assert len(PLAIN) == sum(map(len, write.SAID.values()))  # no word has two meanings
    made = write.draw_pairs(600, seed=0)
    pairs = list(zip(made["prompt"], made["completion"], strict=True))
    assert all(plain(asked) == plain(said) for asked, said in pairs)
    assert sum(asked == said for asked, said in pairs) < 200 and made == write.draw_pairs(600, 0)
    said = {write.reword("an orange ring", random.Random(n)) for n in range(99)}
    assert len(said) == 9 and {"an amber hoop", "a rust loop", "an orange ring"} < said


@pytest.mark.usefixtures("in_the_checkout")
def test_the_recipe_trains_a_rewriter_of_them(tmp_path: Path) -> None:
    write.main([f"out={tmp_path}", "pairs=64"])
    words = ["config=configs/sft/shapes_rewriter.yaml", f"output_dir={tmp_path / 'run'}"]
    words += [f"objective.data={tmp_path / 'train_pairs.parquet'}", "max_steps=2", "bf16=false"]
    words += [f"objective.model={tmp_path / 'start'}", "logging_steps=1", "warmup_steps=0"]
    run = train(load_config(SFTConfig, [*words, "lr_scheduler_kwargs.num_decay_steps=1"]))
    assert [line["step"] for line in metrics(run) if "loss" in line] == [1, 2]
