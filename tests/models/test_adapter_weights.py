"""Adapters on disk: peft reads what is written, and what does not fit is refused by name."""

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from torch import Generator, nn

from mmrl.models import load_model
from mmrl.models.adapter_weights import name_targets
from mmrl.models.families import names_of
from mmrl.models.loading import build_network, outline, save_model
from mmrl.models.network.core import MaskedTokenModel
from mmrl.pretrained.checks import check_checkpoints
from mmrl.pretrained.known import Known, known_config
from mmrl.pretrained.model_config import ROLES, LoraConfig, ModelConfig
from mmrl.training.trainable import train_parts
from tests.models.llada_tokenizer import small_tokenizer
from tests.models.networks import LLADA_V, small_network

IDS = torch.randint(40, (2, 9), generator=Generator().manual_seed(1))
KEY = "base_model.model.model.transformer.blocks.0.q_proj.lora_A.weight"


def move(network: nn.Module) -> None:
    """Give everything trained other values."""
    draw = Generator().manual_seed(3)
    for parameter in network.parameters():
        if parameter.requires_grad:
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=draw)


def write(folder: Path, kind: str = "llada", **options: object) -> tuple[MaskedTokenModel, Path]:
    """A base in `folder/base`, and a moved adapter of it in `folder/adapter`."""
    if not (folder / "base").is_dir():
        network = small_network(vocab_size=119)
        network.public_config["mask_token_id"] = 115  # of the small tokenizer
        if kind != "llada":
            network = build_network({**LLADA_V, "vocab_size": 40})
            torch.nn.init.normal_(network.vision.newline, generator=Generator().manual_seed(0))
        save_model(network, folder / "base")
    network, parts = load_model(folder / "base"), options.pop("modules_to_train", None)
    lora = LoraConfig(**{"r": 3, "lora_alpha": 5, **options})
    path = str(folder / "base")
    train_parts(network, ModelConfig(path=path, lora=lora, modules_to_train=parts), seed=0)  # type: ignore[arg-type]
    move(network)
    save_model(network, folder / "adapter")
    return network, folder / "adapter"


def public_tree(network: MaskedTokenModel) -> nn.Module:
    """Modules with the names and weights that the public code has."""
    root, state = nn.Module(), network.state_dict()
    for name, public in names_of(network).items():
        *parents, last = public.split(".")
        module = root
        for parent in parents[:-1]:
            if parent not in module._modules:
                module.add_module(parent, nn.Module())
            module = module.get_submodule(parent)
        if parents[-1] not in module._modules:
            tensor = state[name]
            biased = ".".join([*parents, "bias"]) in names_of(network).values()
            sizes = (tensor.shape[-1], tensor.shape[0], biased)
            linear = nn.Linear(*sizes) if tensor.ndim == 2 else None
            module.add_module(parents[-1], linear or nn.Module())
        layer = module.get_submodule(parents[-1])
        layer.register_parameter(last, nn.Parameter(state[name].clone()))
    return root


VARIANTS = [{}, {"target_modules": ["q", "k", "v"], "use_rslora": True}]
VARIANTS += [{"use_dora": True}]
VARIANTS += [{"modules_to_train": ["blocks.*.attn_norm", "head", "vision.projector.0.weight"]}]


@pytest.mark.parametrize("kind", ["llada", "llava_llada"])
@pytest.mark.parametrize("options", VARIANTS, ids=["plain", "rslora", "dora", "full-parts"])
def test_peft_puts_a_saved_adapter_on_the_public_model(
    tmp_path: Path, kind: str, options: dict
) -> None:
    parts = options.get("modules_to_train", [])[: None if kind == "llava_llada" else 2]
    _, folder = write(
        tmp_path, kind, **{**options, **({"modules_to_train": parts} if parts else {})}
    )
    base, merged = load_model(tmp_path / "base"), load_model(folder)
    found = PeftModel.from_pretrained(public_tree(base), folder)  # type: ignore[arg-type]
    layers = len(options.get("target_modules", ROLES))
    assert sum("lora_A" in name for name, _ in found.named_parameters()) == 2 * layers
    tensors, state = found.merge_and_unload().state_dict(), merged.state_dict()
    for name, public in names_of(base).items():
        torch.testing.assert_close(tensors[public], state[name], atol=1e-6, rtol=1e-5)
    changed = {n for n, t in base.state_dict().items() if not torch.equal(t, state[n])}
    assert len(changed) == 2 * layers + len(parts) + bool(parts)


@pytest.mark.parametrize("options", [*VARIANTS, {"modules_to_train": ["blocks.0.attn"]}])
def test_what_is_loaded_computes_what_was_trained(tmp_path: Path, options: dict) -> None:
    network, folder = write(tmp_path, **options)
    with torch.no_grad():
        expected, start = network(input_ids=IDS).logits, load_model(tmp_path / "base")
        found = load_model(folder)(input_ids=IDS).logits
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        plain = load_model(folder, merge_adapter=False)(input_ids=IDS).logits
        assert torch.equal(plain, start(input_ids=IDS).logits)
    assert (found - plain).abs().max() > 1e-2


def test_the_configuration_names_the_base_and_the_public_layers(tmp_path: Path) -> None:
    _, folder = write(tmp_path, target_modules=["q", "v"], modules_to_train=["norm"])
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(tmp_path / "base")
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 3, 5)
    assert config["target_modules"] == ["q_proj", "v_proj"]
    assert config["modules_to_save"] == ["model.transformer.ln_f"]
    tensors = load_file(folder / "adapter_model.safetensors")
    assert KEY in tensors and "base_model.model.model.transformer.ln_f.weight" in tensors
    assert known_config(str(folder)) == known_config(str(tmp_path / "base"))
    assert not (folder / "config.json").exists()


def test_layers_that_end_as_others_do_are_named_whole() -> None:
    names = ["a.blocks.0.ff_out.weight", "a.blocks.11.ff_out.weight", "a.ff_out.weight"]
    chosen = [name.removesuffix(".weight") for name in names]
    assert name_targets(chosen[:2], names) == chosen[:2]
    assert name_targets(chosen, names) == ["ff_out"]


def test_an_adapter_is_continued_where_it_was_left(tmp_path: Path) -> None:
    options = {"use_dora": True, "modules_to_train": ["norm"]}
    trained, folder = write(tmp_path, **options)
    small_tokenizer().save_pretrained(tmp_path / "base")
    network = load_model(folder, merge_adapter=False)
    lora = LoraConfig(r=3, lora_alpha=5, use_dora=True)
    model = ModelConfig(path=str(folder), vq=None, lora=lora, modules_to_train=["norm"])
    check_checkpoints(Known.read(model))
    train_parts(network, model, seed=7)
    for name, tensor in trained.state_dict().items():
        assert torch.equal(network.state_dict()[name], tensor), name
    save_model(network, tmp_path / "again")
    first, again = (
        json.loads((f / "adapter_config.json").read_text()) for f in (folder, tmp_path / "again")
    )
    assert first == again


def test_an_adapter_is_not_continued_as_another(tmp_path: Path) -> None:
    _, folder = write(tmp_path)
    for key, value in (("r", 4), ("target_modules", ["q"])):
        lora = LoraConfig(**{"r": 3, "lora_alpha": 5, key: value})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=rf"model\.lora\.{key} is .*; it must be"):
            check_checkpoints(Known.read(ModelConfig(path=str(folder), vq=None, lora=lora)))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("r", 5, r"\(r is 5\): .*wrong shape: model.*lora_A.weight is \(3, 32\)"),
        ("peft_type", "LOHA", "peft_type is 'LOHA', which is not read"),
        ("rank_pattern", {"q_proj": 2}, r"rank_pattern is .* Merge the adapter with peft"),
        ("lora_alpha", None, "lora_alpha is None; write what"),
        ("base_model_name_or_path", "/nowhere/at all", "base_model_name_or_path is '/nowhere/at"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused_by_name(
    tmp_path: Path, key: str, value: object, message: str
) -> None:
    _, folder = write(tmp_path)
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        outline(folder)


def test_an_adapter_of_another_base_is_refused_before_weights_load(tmp_path: Path) -> None:
    _, folder = write(tmp_path)
    weights = folder / "adapter_model.safetensors"
    tensors = load_file(weights)
    shallow = small_network(num_layers=1)
    shallow.public_config["n_layers"] = 1
    save_model(shallow, tmp_path / "shallow")
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = "../shallow"  # beside the adapter
    (folder / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"14 tensors of no layer .*shallow'.*blocks\.1\."):
        outline(folder)
    config["base_model_name_or_path"] = str(tmp_path / "base")
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file({k: v for k, v in tensors.items() if k != KEY}, weights)
    with pytest.raises(ValueError, match=r"1 missing: .*blocks\.0\.q_proj\.lora_A"):
        outline(folder)
    weights.unlink()
    with pytest.raises(FileNotFoundError, match="adapters are read from safetensors"):
        outline(folder)
    (tmp_path / "base" / "config.json").rename(tmp_path / "base" / "adapter_config.json")
    with pytest.raises(ValueError, match="which is an adapter too"):
        outline(folder)
