"""Train the small tokenizer of the text tasks: byte-level BPE with LLaDA's special tokens.

    python datasets/text/tokenizer.py out=datasets/text/tokenizer

The words of the prompts and the tags of the answers are one token each, every digit is one, and
any other text is spelled in bytes. Special tokens and chat template are LLaDA's.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

SPECIAL = [
    "<|startoftext|>",
    "<|endoftext|>",
    *(f"<|reserved_token_{i}|>" for i in range(16)),
    "<|mdm_mask|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
]
TAGS = ["<reasoning>", "</reasoning>", "<answer>", "</answer>"]
ROLES = ["system", "user", "assistant"]
CHAT_TEMPLATE = (
    "{{ '<|startoftext|>' }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'"
    " + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
)


def corpus() -> list[str]:
    """Every word of the prompts and roles, at the start of a text and within it."""
    files = sorted(Path(__file__).parent.glob("*_train.jsonl"))
    texts = [json.loads(row)["prompt"] for file in files for row in file.read_text().splitlines()]
    words = sorted({word for text in texts for word in re.findall("[a-z]+", text)} | set(ROLES))
    return [*words, *(f" {word}" for word in words)] * 8


def build() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        min_frequency=2,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    # no special tokens: decoding keeps them, and the rewards read them
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|startoftext|>",
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        mask_token="<|mdm_mask|>",
        chat_template=CHAT_TEMPLATE,
    )


def main() -> None:
    words = dict(word.split("=", 1) for word in sys.argv[1:])
    tokenizer = build()
    tokenizer.save_pretrained(words["out"])
    print(f"{len(tokenizer)} tokens in {words['out']}")


if __name__ == "__main__":
    main()
