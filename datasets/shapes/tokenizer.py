"""Train the small tokenizer of the shapes world: byte-level BPE with LLaDA's special tokens.

    python datasets/shapes/tokenizer.py out=datasets/shapes/tokenizer

Every word of the prompt files becomes one token; digits stay single; any other text is spelled in
bytes. The special tokens carry the names LLaDA's tokenizer gives them, so the layouts find them.
"""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
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
EXTRA = ["user", "assistant", "describe the image", "how many what color shape is are yes no"]
CHAT_TEMPLATE = (
    "{{ '<|startoftext|>' }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n'"
    " + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n' }}"
)


def corpus() -> list[str]:
    """Every word of the prompts and of the conversations around them, at the start and mid-text."""
    rows = Path(__file__).with_name("train.jsonl").read_text().splitlines()
    texts = [json.loads(row)["prompt"] for row in rows] + EXTRA
    words = sorted({word for text in texts for word in text.split()})
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
