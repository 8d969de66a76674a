"""Exports of a checkpoint lead to the public code that its source had."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mmrl.models import load_model
from mmrl.models.loading import save_model
from mmrl.models.public_code import Source, describe_code
from tests.models.networks import CONFIG, LLADA_V, small_network

MAP = {"AutoConfig": "configuration_own.OwnConfig", "AutoModel": "modeling_own.OwnModel"}
CODE = """
import torch
from torch import nn
from transformers import PreTrainedModel

from .configuration_own import OwnConfig


class Block(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        for name, rows, columns in (
            ("q_proj", width, width),
            ("k_proj", width, width),
            ("v_proj", width, width),
            ("attn_out", width, width),
            ("ff_proj", inner, width),
            ("up_proj", inner, width),
            ("ff_out", width, inner),
        ):
            setattr(self, name, nn.Linear(columns, rows, bias=False))
        self.attn_norm, self.ff_norm = nn.RMSNorm(width), nn.RMSNorm(width)


class OwnModel(PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        width, rows = config.d_model, config.vocab_size
        self.model = nn.Module()
        self.model.transformer = nn.ModuleDict({
            "wte": nn.Embedding(rows, width),
            "blocks": nn.ModuleList(
                Block(width, config.mlp_hidden_size) for _ in range(config.n_layers)
            ),
            "ln_f": nn.RMSNorm(width),
            "ff_out": nn.Linear(width, rows, bias=False),
        })
        self.post_init()
"""
CONFIGURATION = """
from transformers import PretrainedConfig


class OwnConfig(PretrainedConfig):
    model_type = "llada"

    def __init__(self, d_model=8, n_layers=1, mlp_hidden_size=8, vocab_size=8, **rest):
        super().__init__(**rest)
        self.d_model, self.n_layers = d_model, n_layers
        self.mlp_hidden_size, self.vocab_size = mlp_hidden_size, vocab_size
"""
CHECK = """
import sys, torch
from safetensors.torch import load_file
from transformers import AutoModel
model, info = AutoModel.from_pretrained(
    sys.argv[1], trust_remote_code=True, output_loading_info=True
)
assert not any(info.values()), info
stored = load_file(sys.argv[1] + "/model.safetensors")
state = model.state_dict()
assert state.keys() == stored.keys()
assert all(torch.equal(state[name], stored[name].to(state[name].dtype)) for name in stored)
print(type(model).__name__)
"""


def write_source(folder: Path) -> Path:
    """A checkpoint with public code beside it."""
    network = small_network()
    network.public_config["auto_map"] = MAP
    save_model(network, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": MAP}))
    (folder / "modeling_own.py").write_text(CODE)
    (folder / "configuration_own.py").write_text(CONFIGURATION)
    (folder / "generation_config.json").write_text('{"eos_token_id": 3}')
    return folder


def export(folder: Path, out: Path) -> Path:
    network = load_model(folder)
    network.norm.weight.data += 1
    save_model(network, out)
    return out


def test_code_beside_a_local_source_and_its_generation_settings_go_along(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    first = export(source, tmp_path / "first")
    again = export(first, tmp_path / "again")
    for folder in (first, again):
        assert json.loads((folder / "config.json").read_text())["auto_map"] == MAP
        for name in ("modeling_own.py", "configuration_own.py", "generation_config.json"):
            assert (folder / name).read_text() == (source / name).read_text()


@pytest.mark.slow
def test_an_export_loads_with_transformers(tmp_path: Path) -> None:
    folder = export(write_source(tmp_path / "source"), tmp_path / "export")
    environment = {
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_OFFLINE": "1",
        "PATH": "/usr/bin:/bin",
    }
    done = subprocess.run(
        [sys.executable, "-c", CHECK, str(folder)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "OwnModel"


def test_code_that_stays_on_the_hub_is_named_with_its_repository(tmp_path: Path) -> None:
    remote = Source("owner/model", tmp_path)
    found = describe_code({**CONFIG, "auto_map": MAP}, remote)["auto_map"]
    assert found == {name: f"owner/model--{entry}" for name, entry in MAP.items()}
    assert describe_code({**CONFIG, "auto_map": found}, remote)["auto_map"] == found
    tokenizer = {"AutoTokenizer": ["tokenization_own.Own", None]}
    found = describe_code({**CONFIG, "auto_map": tokenizer}, remote)["auto_map"]
    assert found == {"AutoTokenizer": ["owner/model--tokenization_own.Own", None]}


def test_a_checkpoint_that_names_no_code_gets_that_of_its_family() -> None:
    found = describe_code(CONFIG, None)["auto_map"]
    assert found["AutoModel"] == "GSAI-ML/LLaDA-8B-Instruct--modeling_llada.LLaDAModelLM"
    assert "auto_map" not in describe_code(LLADA_V, None)  # whose public class has no tower
