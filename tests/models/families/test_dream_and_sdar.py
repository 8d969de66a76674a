"""Dream: qwen2's tokenizer without its class. SDAR and TraDo: block size and mask."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers.pre_tokenizers import ByteLevel
from torch.nn.functional import cross_entropy
from transformers import Qwen2Config, Qwen2ForCausalLM

from mmrl.models import load_model, load_policy
from mmrl.models.policy import load_tokenizer
from mmrl.objectives.text import CompletionConfig, Completions
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Prompt
from tests.models.networks import FIXTURES

ALPHABET = sorted(ByteLevel.alphabet())
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|beginoftext|>", "<|mask|>")
CHAT = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def write_tokenizer(folder: Path) -> dict[str, int]:
    """The files of Dream's tokenizer, of few words; the ids of its special tokens."""
    words = [*ALPHABET, "he", "ll", "llo"]
    (folder / "vocab.json").write_text(json.dumps({word: n for n, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\nh e\nl l\nll o\n")
    ids = {token: len(words) + n for n, token in enumerate(SPECIAL)}
    flags = {"special": True, "lstrip": False, "rstrip": False, "normalized": False}
    config = {
        "tokenizer_class": "DreamTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]},
        "added_tokens_decoder": {
            str(n): {"content": token, "single_word": False, **flags} for token, n in ids.items()
        },
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "mask_token": "<|mask|>",
        "chat_template": CHAT,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return ids


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    shutil.copytree(FIXTURES / "dream", tmp_path / "dream")
    ids = write_tokenizer(tmp_path / "dream")
    path = tmp_path / "dream" / "config.json"
    ends = {"mask_token_id": ids["<|mask|>"], "pad_token_id": ids["<|endoftext|>"]}
    path.write_text(json.dumps({**json.loads(path.read_text()), **ends}))
    return tmp_path / "dream"


def test_the_files_of_the_slow_tokenizer_are_read_without_its_code(checkpoint: Path) -> None:
    tokenizer = load_tokenizer(checkpoint)
    text = "hello añ\n<|im_end|>"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert ids[:2] == [256, 258] and ids[-1] == len(ALPHABET) + 3 + SPECIAL.index("<|im_end|>")
    (checkpoint / "merges.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        load_tokenizer(checkpoint)


def test_a_completion_holds_tokens_of_the_tokenizer_and_ends_with_a_turn(checkpoint: Path) -> None:
    policy = load_policy(checkpoint, vq=None, max_completion_length=8)
    layout = policy.layouts["text"]
    assert layout.ids["eot"] in layout.stop_ids and policy.mask_id == len(policy.tokenizer) - 1
    prompts = [Prompt(id=str(n), task="text", text="hello" * (n + 1)) for n in range(3)]
    canvas = policy.canvas(prompts)
    for cache in ("none", "prefix", "dual"):
        settings = SamplerConfig(
            name="entropy", steps=4, block_size=4, temperature=1.0, cache=cache
        )
        done = sample(policy, canvas, settings, torch.Generator().manual_seed(0)).canvas
        written = done.tokens[done.response]
        assert bool((written < len(policy.tokenizer)).all() and (written != policy.mask_id).all())
    policy.save(checkpoint / "again")
    again = load_policy(checkpoint / "again", vq=None)
    assert again.tokenizer.get_vocab() == policy.tokenizer.get_vocab()
    assert json.loads((checkpoint / "again" / "config.json").read_text())["model_type"] == "Dream"


def test_a_cached_block_predicts_from_the_position_before_it(checkpoint: Path) -> None:
    """With one layer, keys and values depend on tokens alone, so a cache never goes stale."""
    path = checkpoint / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_hidden_layers": 1}))
    weights = load_file(checkpoint / "model.safetensors")
    kept = {n: t for n, t in weights.items() if "layers." not in n or "layers.0." in n}
    save_file(kept, checkpoint / "model.safetensors")
    policy = load_policy(checkpoint, vq=None, dtype="float64", max_completion_length=8)
    prompts = [Prompt(id=text, task="text", text=text) for text in ("hello", "he")]
    tokens = []
    for cache in ("none", "prefix", "dual"):
        settings = SamplerConfig(name="static", steps=8, block_size=4, cache=cache)
        draw = [torch.Generator().manual_seed(n) for n in range(2)]
        done = sample(policy, policy.canvas(prompts), settings, draw)
        tokens.append(done.canvas.tokens.tolist())
    assert tokens[0] == tokens[1] == tokens[2]


def test_causal_training_has_the_loss_of_an_autoregressive_network_of_the_same_weights(
    checkpoint: Path, tmp_path: Path
) -> None:
    rows = [("hello", "he said hello"), ("he", "o"), ("hello hello", "hell")]
    lines = [json.dumps({"prompt": prompt, "completion": answer}) for prompt, answer in rows]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    data, start = str(tmp_path / "rows.jsonl"), str(checkpoint)
    config = CompletionConfig(model=start, data=data, corruption={"name": "causal"})
    objective = Completions(config, seed=0, batch_size=len(rows))
    batch = objective.batch(0, 0, 1)
    network = Qwen2ForCausalLM(
        Qwen2Config(**json.loads((FIXTURES / "dream" / "config.json").read_text()))
    )
    network.load_state_dict(load_file(checkpoint / "model.safetensors"))
    logits = network(batch.targets, attention_mask=batch.real.long()).logits
    losses = []
    for n, row in enumerate(batch.weight > 0):
        [places] = row.nonzero(as_tuple=True)
        own = logits[n, places - 1, : len(objective.policy.tokenizer)]
        losses.append(cross_entropy(own, batch.targets[n, places]))
    expected = torch.stack(losses).mean()
    torch.testing.assert_close(objective.loss(batch)[0], expected, rtol=1e-5, atol=1e-6)


def write_checkpoint(folder: Path, **changes: object) -> Path:
    """The fixture with a tokenizer, and with keys of config.json changed or, if None, left out."""
    shutil.copytree(FIXTURES / "sdar", folder)
    ids = write_tokenizer(folder)
    path = folder / "config.json"
    ends = {"mask_token_id": ids["<|mask|>"], "pad_token_id": ids["<|endoftext|>"], **changes}
    config = {**json.loads(path.read_text()), **ends}
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    return folder


def test_the_block_size_follows_the_option_the_config_and_the_name(tmp_path: Path) -> None:
    def size(name: str, **changes: object) -> int | None:
        folder = tmp_path / name
        if not folder.exists():
            write_checkpoint(folder, **changes)
        return load_model(folder).block_size

    assert size("SDAR-4B-Chat") == 4
    assert size("SDAR-4B-Chat-b16") == 16
    assert size("models--JetLM--SDAR-1.7B-Chat-b8/snapshots/0f1") == 8
    assert size("tuned-b8", block_size=32) == 32
    policy = load_policy(tmp_path / "SDAR-4B-Chat-b16", vq=None, block_size=2)
    assert policy.network.block_size == 2
    policy.save(tmp_path / "saved")
    assert load_model(tmp_path / "saved").block_size == 2
    names = [key for key in load_model(tmp_path / "saved").state_dict() if "q_norm" in key]
    assert len(names) == 3


@pytest.mark.parametrize("alignment", ["left", "right"])
def test_completions_are_written_block_by_block(tmp_path: Path, alignment: str) -> None:
    folder = write_checkpoint(tmp_path / "sdar")
    policy = load_policy(folder, vq=None, max_completion_length=8, block_alignment=alignment)
    prompts = [Prompt(id=str(n), task="text", text="hello" * (n + 1)) for n in range(3)]
    canvas = policy.canvas(prompts)
    place = canvas.split()
    assert place is not None
    counts = [torch.bincount(row[row >= 0]).tolist() for row in place]
    if alignment == "right":
        assert counts == [[4, 4]] * 3
    else:
        lengths = [int(row.sum()) - 8 for row in canvas.attend]  # type: ignore[union-attr]
        assert [row[0] for row in counts] == [4 - length % 4 for length in lengths]
    settings = SamplerConfig(name="static", steps=8, cache="prefix")
    done = sample(policy, canvas, settings, torch.Generator().manual_seed(0))
    order = done.trace.where(canvas.response, -1)
    for row in range(3):
        for k in range(int(place[row].max())):
            assert order[row][place[row] == k].max() < order[row][place[row] == k + 1].min()
    assert len(policy.decode(done.canvas, prompts)) == 3
