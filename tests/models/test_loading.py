"""Loading and saving directories in the public format, and what a broken one is told."""

import json
import stat
from pathlib import Path

import pytest
import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file, save_file
from torch import Generator

from mmrl.models import load_model
from mmrl.models.loading import new_model, save_model
from mmrl.models.network.core import MaskedTokenModel
from tests.models.networks import CONFIG, FIXTURES, small_network

PUBLIC = FIXTURES / "llada"
EMBEDDING, HEAD = "model.transformer.wte.weight", "model.transformer.ff_out.weight"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_model(small_network(), tmp_path / "saved")
    return tmp_path / "saved"


def rewrite(directory: Path, **changes: object) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, **changes}))


def same_weights(one: MaskedTokenModel, other: MaskedTokenModel) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


def test_a_public_checkpoint_saved_again_holds_the_same_tensors_and_configuration(
    tmp_path: Path,
) -> None:
    save_model(load_model(PUBLIC, dtype="bfloat16"), tmp_path)
    before, after = (load_file(p / "model.safetensors") for p in (PUBLIC, tmp_path))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    public = json.loads((PUBLIC / "config.json").read_text())
    found = json.loads((tmp_path / "config.json").read_text())
    repository = "GSAI-ML/LLaDA-8B-Instruct--"
    assert found.pop("auto_map")["AutoModel"] == f"{repository}modeling_llada.LLaDAModelLM"
    assert found == public


def test_saving_in_half_precision_rounds_once_and_loads_back_as_asked(tmp_path: Path) -> None:
    model = small_network()
    save_model(model, tmp_path, dtype="bfloat16")
    assert load_model(tmp_path, dtype=torch.bfloat16).embed.weight.dtype == torch.bfloat16
    loaded = load_model(tmp_path)
    assert torch.equal(loaded.embed.weight, model.embed.weight.bfloat16().float())
    assert not loaded.training


def test_saved_files_can_be_read_by_others(saved: Path) -> None:
    mode = (saved / "model.safetensors").stat().st_mode
    assert mode & stat.S_IRGRP and mode & stat.S_IROTH


def test_a_state_given_in_place_of_the_weights_is_what_is_written(tmp_path: Path) -> None:
    model, other = small_network(0), small_network(1)
    save_model(model, tmp_path, state=other.state_dict())
    assert same_weights(load_model(tmp_path), other)


def test_shards_with_an_index_load_as_one_file_does(saved: Path) -> None:
    tensors = load_file(saved / "model.safetensors")
    save_torch_state_dict(tensors, saved, max_shard_size=20_000)
    assert len(list(saved.glob("*.safetensors"))) > 1
    assert same_weights(load_model(saved), small_network())


def test_saving_over_shards_leaves_no_stale_shard(saved: Path) -> None:
    save_torch_state_dict(load_file(saved / "model.safetensors"), saved, max_shard_size=20_000)
    save_model(small_network(3), saved)
    assert [path.name for path in saved.glob("*.safetensors*")] == ["model.safetensors"]
    assert same_weights(load_model(saved), small_network(3))


def test_a_missing_shard_is_named(saved: Path) -> None:
    save_torch_state_dict(load_file(saved / "model.safetensors"), saved, max_shard_size=20_000)
    lost = sorted(saved.glob("*.safetensors"))[1]
    lost.unlink()
    with pytest.raises(FileNotFoundError, match=lost.name):
        load_model(saved)
    (saved / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ValueError, match=r"index\.json"):
        load_model(saved)


def test_an_index_leads_to_no_file_outside_its_folder(saved: Path) -> None:
    save_torch_state_dict(load_file(saved / "model.safetensors"), saved, max_shard_size=20_000)
    index = saved / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    for name in ("../secret.safetensors", "/etc/passwd"):
        content["weight_map"][HEAD] = name
        index.write_text(json.dumps(content))
        with pytest.raises(ValueError, match=r"a shard must be a file beside it"):
            load_model(saved)


def test_the_vocabulary_is_as_large_as_the_tensors_whatever_the_configuration_says(
    saved: Path,
) -> None:
    rewrite(saved, vocab_size=30, embedding_size=64)
    model = load_model(saved)
    assert model.core.vocab_size == 40
    assert {model.public_config[key] for key in ("vocab_size", "embedding_size")} == {40}


def test_a_tied_head_is_stored_once_and_loads_tied(tmp_path: Path) -> None:
    model = small_network(tied_head=True)
    model.public_config = {**CONFIG, "weight_tying": True}
    save_model(model, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert HEAD not in tensors
    loaded = load_model(tmp_path)
    assert loaded.head.weight is loaded.embed.weight
    assert torch.equal(loaded.embed.weight, model.embed.weight)
    save_file({**tensors, HEAD: tensors[EMBEDDING].clone()}, tmp_path / "model.safetensors")
    assert torch.equal(load_model(tmp_path).head.weight, model.embed.weight)


def test_grouped_key_value_heads_and_biases_survive_a_round_trip(tmp_path: Path) -> None:
    model = small_network(num_kv_heads=2, qkv_bias=True)
    model.public_config = {**CONFIG, "n_kv_heads": 2, "include_qkv_bias": True}
    save_model(model, tmp_path)
    names = load_file(tmp_path / "model.safetensors").keys()
    assert "model.transformer.blocks.1.k_proj.bias" in names
    ids = torch.arange(12).view(1, 12)
    loaded = load_model(tmp_path)
    assert loaded.core.num_kv_heads == 2
    assert torch.equal(loaded(input_ids=ids).logits, model(input_ids=ids).logits)


def test_missing_unexpected_and_misshaped_tensors_are_listed(saved: Path) -> None:
    tensors = load_file(saved / "model.safetensors")
    tensors["model.transformer.extra"] = tensors.pop("model.transformer.ln_f.weight")
    tensors["model.transformer.blocks.0.q_proj.weight"] = torch.zeros(32, 31)
    save_file(tensors, saved / "model.safetensors")
    with pytest.raises(ValueError) as caught:
        load_model(saved)
    for part in (
        "missing: model.transformer.ln_f",
        "unexpected: model.transformer.extra",
        "blocks.0.q_proj.weight is (32, 31), expected (32, 32)",
    ):
        assert part in str(caught.value)


def test_truncated_weights_are_an_error(saved: Path) -> None:
    whole = (saved / "model.safetensors").read_bytes()
    for size in (len(whole) // 2, 4, 0):
        (saved / "model.safetensors").write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"model\.safetensors' cannot be read.*again"):
            load_model(saved)


@pytest.mark.parametrize("damage", ["truncated", "misshaped", "stray"])
def test_damage_in_the_last_shard_is_known_before_any_tensor_is_read(
    damage: str, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_torch_state_dict(load_file(saved / "model.safetensors"), saved, max_shard_size=20_000)
    last = sorted(saved.glob("*.safetensors"))[-1]
    tensors = load_file(last)
    name = next(iter(tensors))
    if damage == "truncated":
        last.write_bytes(last.read_bytes()[:-1])
    elif damage == "misshaped":
        save_file({**tensors, name: tensors[name][:-1]}, last)
    else:
        save_file({**tensors, "stray": torch.zeros(1)}, last)
    unread = "mmrl.models.network.stored_weights.read_rows"
    monkeypatch.setattr(unread, lambda *_: pytest.fail("tensors read"))
    named = {"truncated": last.name, "misshaped": name, "stray": "1 unexpected: stray"}[damage]
    with pytest.raises(ValueError, match=named):
        load_model(saved)


def test_a_directory_without_weights_or_configuration_is_named(saved: Path) -> None:
    (saved / "model.safetensors").rename(saved / "weights.pt")
    with pytest.raises(FileNotFoundError, match="no weights"):
        load_model(saved)
    (saved / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        load_model(saved)
    with pytest.raises(FileNotFoundError, match="nowhere.*neither an existing directory"):
        load_model(saved / "nowhere")


def test_pickled_weights_of_a_language_model_are_not_opened(saved: Path) -> None:
    (saved / "model.safetensors").unlink()
    torch.save(small_network().state_dict(), saved / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match=r"expected \*\.safetensors\."):
        load_model(saved)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "not JSON"),
        ("[]", "holds no settings but list"),
        (
            json.dumps({"model_type": "gpt2", "n_embd": 768}),
            "'gpt2' and the keys are those of no family; known families: amused, dream, llada,",
        ),
        (json.dumps({**CONFIG, "d_model": None}), "lacks 'd_model'"),
        (json.dumps({**CONFIG, "d_model": "wide"}), "d_model is 'wide'"),
        (json.dumps({**CONFIG, "n_heads": 5}), "no multiple of n_heads = 5"),
        (json.dumps({**CONFIG, "alibi": True}), "alibi is True"),
    ],
)
def test_bad_configurations_are_named(saved: Path, text: str, named: str) -> None:
    (saved / "config.json").write_text(text)
    with pytest.raises(ValueError, match=named) as raised:
        load_model(saved)
    assert str(saved) in str(raised.value)


def test_a_device_may_have_the_number_that_launched_processes_give_it(saved: Path) -> None:
    assert load_model(saved, device=torch.device("cpu", 0)).device.type == "cpu"


def test_an_unknown_dtype_is_named_with_those_there_are(saved: Path) -> None:
    with pytest.raises(ValueError, match="'fp8'.*float32, bfloat16, float16"):
        load_model(saved, dtype="fp8")


def test_a_fresh_network_follows_from_its_generator() -> None:
    one, two, other = (new_model(CONFIG, Generator().manual_seed(seed)) for seed in (5, 5, 6))
    assert same_weights(one, two) and not same_weights(one, other)
    assert torch.equal(one.norm.weight, torch.ones(32))
