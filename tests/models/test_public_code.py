"""Exports of a checkpoint lead to the public code that its source had."""

import json
from pathlib import Path

from mmrl.models import load_model
from mmrl.models.loading import save_model
from mmrl.models.public_code import Source, describe_code
from tests.models.networks import CONFIG, small_network

MAP = {"AutoConfig": "configuration_own.OwnConfig", "AutoModel": "modeling_own.OwnModel"}


def write_source(folder: Path) -> Path:
    """A checkpoint with public code beside it."""
    network = small_network()
    network.public_config["auto_map"] = MAP
    save_model(network, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": MAP}))
    (folder / "modeling_own.py").write_text("own = 1\n")
    (folder / "configuration_own.py").write_text("own = 2\n")
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


def test_code_that_stays_on_the_hub_is_named_with_its_repository(tmp_path: Path) -> None:
    remote = Source("owner/model", tmp_path)
    found = describe_code({**CONFIG, "auto_map": MAP}, remote)["auto_map"]
    assert found == {name: f"owner/model--{entry}" for name, entry in MAP.items()}
    assert describe_code({**CONFIG, "auto_map": found}, remote)["auto_map"] == found
    tokenizer = {"AutoTokenizer": ["tokenization_own.Own", None]}
    found = describe_code({**CONFIG, "auto_map": tokenizer}, remote)["auto_map"]
    assert found == {"AutoTokenizer": ["owner/model--tokenization_own.Own", None]}
