"""SDAR and TraDo: block size and mask from config.json, name or option; both alignments."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from mmrl.models import load_model, load_policy
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Prompt
from tests.models.families.test_dream import write_tokenizer
from tests.models.networks import FIXTURES


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
        return load_model(folder).core.block_size

    assert size("SDAR-4B-Chat") == 4
    assert size("SDAR-4B-Chat-b16") == 16
    assert size("models--JetLM--SDAR-1.7B-Chat-b8/snapshots/0f1") == 8
    assert size("tuned-b8", block_size=32) == 32
    policy = load_policy(tmp_path / "SDAR-4B-Chat-b16", vq=None, block_size=2)
    assert policy.network.core.block_size == 2
    policy.save(tmp_path / "saved")
    assert load_model(tmp_path / "saved").core.block_size == 2
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
