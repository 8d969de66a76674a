"""Write prompts in other words, pairs that teach to reword them, and the start of a small network.

    python datasets/shapes/write_synonyms.py out=DIR pairs=40000 seed=0

Every shape, colour and size is said by one of three words, drawn for each; the painters of this
world know the first of them. A pair says a training prompt twice in such words. `start` has sizes
and tokenizer of the network that learns these pairs, in which every word is a token.
"""

from __future__ import annotations

import json
import logging
import random
import re
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parents[1])]

from byte_tokenizer import build  # noqa: E402
from image_pairs import write_pairs  # noqa: E402
from prompts import SPLITS, TAGS, plural, prompt_rows, split_compositions, wordings  # noqa: E402

from mmrl.config import check, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402

logger = logging.getLogger("shapes")

SHAPES = {
    "circle": ("disc", "dot"),
    "square": ("tile", "block"),
    "triangle": ("wedge", "cone"),
    "diamond": ("rhombus", "kite"),
    "cross": ("plus", "spoke"),
    "ring": ("hoop", "loop"),
}
OTHERS = {
    "red": ("scarlet", "ruby"),
    "green": ("jade", "olive"),
    "blue": ("azure", "navy"),
    "yellow": ("gold", "lemon"),
    "purple": ("violet", "plum"),
    "orange": ("amber", "rust"),
    "white": ("ivory", "snow"),
    "black": ("ebony", "jet"),
    "small": ("tiny", "little"),
    "large": ("big", "huge"),
}
SAID = {word: (word, *more) for word, more in (SHAPES | OTHERS).items()}
SAID |= {plural(word): tuple(map(plural, (word, *more))) for word, more in SHAPES.items()}
SIZES = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 4}


@dataclass(kw_only=True)
class Config:
    """What to write."""

    out: str = ""
    """Folder to write into."""
    pairs: int = 40000
    """Training pairs."""
    seed: int = 0
    """Names the pairs."""

    def __post_init__(self) -> None:
        check(self.out != "", "out", self.out, "the folder to write into")
        for key in ("pairs", "seed"):
            check(getattr(self, key) >= 0, key, getattr(self, key), "0 or more")


def reword(prompt: str, rng: random.Random) -> str:
    """A prompt with each word that has others drawn among them and itself."""
    text = " ".join(rng.choice(SAID.get(word, (word,))) for word in prompt.split())
    return re.sub(r"\ban? (?=([aeiou])?)", lambda found: "an " if found[1] else "a ", text)


def draw_pairs(count: int, seed: int) -> dict[str, list[str]]:
    """Columns `prompt` and `completion`, of training compositions, tag by tag in turn."""
    rng = random.Random(f"synonyms {seed}")
    pools = [[wordings(c) for c in split_compositions(tag)["train"]] for tag in TAGS]
    plain = [rng.choice(rng.choice(pools[n % len(pools)]))["prompt"] for n in range(count)]
    return {key: [reword(text, rng) for text in plain] for key in ("prompt", "completion")}


def write_start(folder: Path) -> None:
    """Write the tokenizer and the configuration of a small Qwen3."""
    texts = [row["prompt"] for row in prompt_rows("train")] + [" ".join(s) for s in SAID.values()]
    words = {word for text in texts for word in text.split()}
    tokenizer = build({*words, "user", "assistant", "an"}, gap="\\n\\n")
    tokenizer.save_pretrained(folder)
    published = FOLDER.parent / "text" / "checkpoints" / "qwen3" / "config.json"
    config = {**json.loads(published.read_text()), **SIZES, "vocab_size": len(tokenizer)}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def main(words: list[str]) -> None:
    """Write everything the command line asks for into the folder `out`."""
    config = load_config(Config, words)
    folder = Path(config.out)
    folder.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        rng, path = random.Random(f"synonyms {split}"), folder / f"{split}.jsonl"
        rows = [{**row, "prompt": reword(row["prompt"], rng)} for row in prompt_rows(split)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    write_pairs(folder / "train_pairs.parquet", draw_pairs(config.pairs, config.seed))
    write_start(folder / "start")
    logger.info("wrote %s", folder)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    usage = Usage("python datasets/shapes/write_synonyms.py", __doc__, Config)
    sys.exit(run_command(usage, sys.argv[1:], lambda: main(sys.argv[1:])))
