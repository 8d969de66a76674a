"""Directories of diffusers: what is read of them; diffusers and peft read what is written."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from peft import PeftModel
from torch import Tensor
from transformers import CLIPTextModelWithProjection, T5EncoderModel

from mmrl.models import Policy, source
from mmrl.models.families import get_family
from mmrl.models.loading import load_model
from mmrl.pretrained.known import SIZES, find_here
from mmrl.pretrained.model_config import LoraConfig
from mmrl.training.adapter import add_adapter
from tests import by_path
from tests.models.flow import (
    LENGTH,
    PIPELINE,
    TEXTS,
    ask,
    copy_pipeline,
    count_calls,
    load_cases,
    load_sd3,
    seeded,
)
from tests.models.kept_bytes import count_kept

merging = by_path.load(Path(__file__).parents[2] / "scripts", "merge_adapter")
LIBRARY: Any = diffusers
ROLES = ["q", "k", "v", "o", "up", "down"]


def adapt(folder: Path) -> Policy:
    """A policy with an adapter that has moved from its start, written to a folder."""
    policy = load_sd3()
    policy.model = add_adapter(
        policy.network, LoraConfig(r=2, target_modules=ROLES), 0, str(PIPELINE)
    )
    for name, parameter in policy.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3, generator=seeded([3])[0])
    policy.save(folder)
    return policy


@torch.no_grad()
def velocity(network: Any) -> Tensor:
    """Of the start of the public rollouts."""
    cases = load_cases()
    given = {"latents": cases["in/latents/latents0"], "sigma": torch.tensor([1.0, 0.4])}
    given |= {"states": cases["in/prompts/embeds"], "pooled": cases["in/prompts/pooled"]}
    return network(**given)


@torch.no_grad()
def diffusers_velocity(transformer: Any) -> Tensor:
    """The same by the transformer of diffusers, which counts time in thousandths."""
    cases = load_cases()
    return transformer(
        cases["in/latents/latents0"],
        cases["in/prompts/embeds"],
        cases["in/prompts/pooled"],
        torch.tensor([1000.0, 400.0]),
    ).sample


def test_an_adapter_is_read_by_peft_and_merged_by_the_script(tmp_path: Path) -> None:
    policy = adapt(tmp_path / "adapter")
    known, base = velocity(policy.model), velocity(load_model(PIPELINE))
    assert (known - base).abs().max() > 0.1
    public: Any = LIBRARY.SD3Transformer2DModel.from_pretrained(PIPELINE / "transformer")
    adapted = PeftModel.from_pretrained(public, str(tmp_path / "adapter"))
    torch.testing.assert_close(diffusers_velocity(adapted), known, rtol=1e-4, atol=1e-4)
    merged = load_sd3(tmp_path / "adapter")
    torch.testing.assert_close(velocity(merged.network), known, rtol=1e-4, atol=1e-4)
    out = tmp_path / "merged"
    options = {"adapter": str(tmp_path / "adapter"), "out": str(out), "dtype": "float32"}
    merging.merge(merging.Config(**options))
    written: Any = LIBRARY.DiffusionPipeline.from_pretrained(out)
    found = diffusers_velocity(written.transformer)
    torch.testing.assert_close(found, known, rtol=1e-4, atol=1e-4)


def test_the_transformer_may_be_in_several_files(tmp_path: Path) -> None:
    folder = copy_pipeline(tmp_path / "sharded")
    shutil.rmtree(folder / "transformer")
    public: Any = LIBRARY.SD3Transformer2DModel.from_pretrained(PIPELINE / "transformer")
    public.save_pretrained(folder / "transformer", max_shard_size="50KB")
    assert len(list((folder / "transformer").glob("*.safetensors"))) > 1
    network = load_model(folder)
    assert torch.equal(velocity(network), diffusers_velocity(public))
    for dtype in ("bfloat16", "float16"):
        assert load_model(folder, dtype=dtype).dtype == getattr(torch, dtype)


@pytest.mark.parametrize("way", ["reknown", "without_parts"])
def test_without_t5_its_states_are_the_zeros_of_diffusers(tmp_path: Path, way: str) -> None:
    folder = copy_pipeline(tmp_path / "small")
    index = json.loads((folder / "model_index.json").read_text())
    index |= dict.fromkeys(("text_encoder_3", "tokenizer_3"), [None, None])
    (folder / "model_index.json").write_text(json.dumps(index))
    for name in ("text_encoder_3", "tokenizer_3"):
        shutil.rmtree(folder / name)
    less: Any = {"without_parts": ["text_encoder_3"]}
    policy = load_sd3(**less) if way == "without_parts" else load_sd3(folder)
    condition: Any = policy.canvas(ask(*TEXTS)).condition()  # type: ignore[attr-defined]
    absent: Any = dict.fromkeys(("text_encoder_3", "tokenizer_3"))
    public: Any = LIBRARY.DiffusionPipeline.from_pretrained(folder, **absent)
    known = public.encode_prompt(list(TEXTS), None, None, max_sequence_length=LENGTH)
    assert not condition["states"][:, 77:].any() and condition["states"].shape == (2, 109, 48)
    torch.testing.assert_close(condition["states"], known[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(condition["pooled"], known[2], rtol=1e-4, atol=1e-4)
    if way == "reknown":
        policy.save(tmp_path / "out")
        assert json.loads((tmp_path / "out" / "model_index.json").read_text()) == index


@pytest.mark.parametrize("left_out", [[], ["text_encoder_3"]])
def test_the_weights_of_a_part_that_is_left_out_are_not_fetched(
    left_out: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def download(hub_id: str, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        asked.extend(allow_patterns)
        return str(folder)

    folder = copy_pipeline(tmp_path / "here")
    monkeypatch.setattr(source, "snapshot_download", download)
    monkeypatch.setattr("mmrl.pretrained.known.known_file", lambda _, name: folder / name)
    path = "somebody/pipeline"
    for file in (folder / "text_encoder_3").glob("*.safetensors"):
        file.unlink()
    assert (find_here("model.path", path, left_out) is None) == (not left_out)
    if left_out:
        assert load_sd3(path, without_parts=left_out).canvas(ask(*TEXTS))  # type: ignore[arg-type]
    else:
        with pytest.raises(FileNotFoundError, match="text_encoder_3' holds no weights"):
            load_sd3(path)  # type: ignore[arg-type]
    fetched = {each.partition("/")[0] for each in asked if each.endswith("/*.safetensors")}
    assert {"transformer", "text_encoder", "vae"} <= fetched
    assert ("text_encoder_3" in fetched) == (not left_out)


def test_blocks_that_are_computed_again_have_the_same_gradients() -> None:
    def gradients(again: bool) -> Iterator[Tensor]:
        policy = load_sd3()
        policy.network.gradient_checkpointing = again
        calls = []
        block = policy.network.blocks[0]
        block.attn.register_forward_hook(lambda *_: calls.append(1))
        condition: Any = policy.canvas(ask(*TEXTS)).condition()  # type: ignore[attr-defined]
        start = load_cases()["in/latents/latents0"]
        found = policy.network(latents=start, sigma=torch.tensor([1.0, 0.4]), **condition)
        found.square().mean().backward()
        assert len(calls) == 1 + again
        return (p.grad for p in policy.network.parameters())  # type: ignore[misc]

    for one, two in zip(gradients(False), gradients(True), strict=True):
        assert torch.equal(one, two)


def test_each_text_is_encoded_once_and_kept_on_disk_by_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for kind in (CLIPTextModelWithProjection, T5EncoderModel):
        count_calls(kind, calls, monkeypatch)
    store, texts = tmp_path / "store", (*TEXTS, TEXTS[0], "")
    policy = load_sd3(encodings_dir=str(store))
    for _ in range(2):
        first: Any = policy.canvas(ask(*texts))
    assert sorted(calls) == ["CLIPTextModelWithProjection"] * 6 + ["T5EncoderModel"] * 3
    assert len(list(store.rglob("*.safetensors"))) == 3 == len(first.texts["pooled"])
    calls.clear()
    again: Any = load_sd3(encodings_dir=str(store)).canvas(ask(*texts))
    assert not calls
    for key, known in first.condition().items():
        assert torch.equal(again.condition()[key], known)
    changed = copy_pipeline(tmp_path / "changed")
    weights = changed / "text_encoder" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    for path, left_out in ((changed, []), (PIPELINE, ["text_encoder_3"])):
        calls.clear()
        load_sd3(path, encodings_dir=str(store), without_parts=left_out).canvas(ask(*texts))
        assert calls.count("CLIPTextModelWithProjection") == 6


@pytest.mark.parametrize("dual", [[], [0, 1]])
@pytest.mark.parametrize("recompute", [False, True])
def test_the_plan_counts_what_sd3_keeps_for_the_backward(dual: list[int], recompute: bool) -> None:
    sizes = {"num_layers": 2, "num_attention_heads": 6, "caption_projection_dim": 384}
    sizes |= {"joint_attention_dim": 256, "pooled_projection_dim": 64, "sample_size": 32}
    raw = {**SIZES["SD3.5-medium"], **sizes, "dual_attention_layers": dual}
    network = get_family(raw).network(raw)
    network.gradient_checkpointing = recompute
    inputs = {"latents": torch.randn(1, 16, 32, 32), "sigma": torch.rand(1)}
    inputs |= {"states": torch.randn(1, 77 + 16, 256), "pooled": torch.randn(1, 64)}
    kept = count_kept(network, lambda: network(**inputs))
    assert network.count_activations(256 + 16, recompute, 4)[0] == pytest.approx(kept, rel=0.15)
