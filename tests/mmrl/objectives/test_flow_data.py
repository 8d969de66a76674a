"""Flow matching on pairs from every place, and what is kept on disk of them."""

import io
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from mmrl.config import ConfigError
from mmrl.models.network.pipeline_parts import PipelineParts
from mmrl.objectives.flow import Flow
from mmrl.sft import SFTConfig, train
from tests.mmrl.objectives.flow_pipelines import COLORS, TEXTS, build, write_pairs, write_start
from tests.mmrl.runs import metrics

PLACES: dict[str, dict[str, str]] = {
    "pairs.parquet": {},
    "shards/*.tar": {"image_column": "png", "text_column": "txt"},
    "captions": {},
    "table": {"text_column": "text"},
    "hub": {},
}
"""Places of the same pairs, and the columns of each; `hub` is a data set as it lies there."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline without weights, one with weights, and pairs in every form."""
    path = tmp_path_factory.mktemp("data")
    write_start(path)
    for name in ("shards", "captions/deep", "table", "hub/data"):
        (path / name).mkdir(parents=True)
    write_pairs(path / "pairs.parquet")
    shutil.copy(path / "pairs.parquet", path / "hub" / "data" / "train-00000-of-00001.parquet")
    for n, (color, text) in enumerate(zip(COLORS, TEXTS, strict=True)):
        image = io.BytesIO()
        Image.new("RGB", (8, 8), color).save(image, "PNG")
        with tarfile.open(path / "shards" / f"{n // 3}.tar", "a") as archive:
            for ending, held in (("png", image.getvalue()), ("txt", text.encode())):
                info = tarfile.TarInfo(f"{n:03}.{ending}")
                info.size = len(held)
                archive.addfile(info, io.BytesIO(held))
        beside = path / "captions" / ("deep" if n % 2 else "") / f"{n}.png"
        for file in (beside, path / "table" / f"{n}.png"):
            file.write_bytes(image.getvalue())
        beside.with_suffix(".txt").write_text(f"{text}\n")
    rows = [{"file_name": f"{n}.png", "text": text} for n, text in enumerate(TEXTS)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (path / "table" / "metadata.jsonl").write_text(lines)
    build(path).save(path / "whole")
    return path


def start(folder: Path, **changes: Any) -> dict[str, Any]:
    given = {"model": str(folder / "whole"), "new_weights": False, "train_text_encoder": False}
    return {**given, **changes}


def pairs_of(flow: Flow, count: int = 5) -> dict[str, bytes]:
    found = flow.data[""].take(range(count))
    return {pair.text: pair.image.open().tobytes() for pair in found}


SLOW = ("pairs.parquet", "hub")
"""Places whose streams end after five seconds of waiting in `datasets`."""
WAYS = [(place, False) for place in PLACES]
WAYS += [pytest.param(p, True, marks=[pytest.mark.slow] * (p in SLOW)) for p in PLACES]


@pytest.mark.parametrize(("place", "streaming"), WAYS)
def test_pairs_are_the_same_from_everywhere(
    folder: Path, place: str, streaming: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path)
    changes = {"data": str(folder / place), "streaming": streaming, **PLACES[place]}
    flow = build(folder, **start(folder, **changes))
    known = pairs_of(build(folder, **start(folder)))
    assert set(known) == set(TEXTS) and pairs_of(flow) == known
    assert flow.batch(0, 0, 1).velocity.shape == (4, 4, 4, 4)


def test_an_image_without_a_text_is_named(folder: Path, tmp_path: Path) -> None:
    bare = Path(shutil.copytree(folder / "captions", tmp_path / "captions"))
    (bare / "deep" / "1.txt").unlink()
    with pytest.raises(ConfigError, match=r"1.png' has no '1.txt' beside it"):
        build(folder, data=str(bare))
    with pytest.raises(ConfigError, match=r"data.split is 'test'; it must be null"):
        build(folder, data=str(folder / "captions"), data_split="test")


@pytest.mark.parametrize("lora", [None, {"r": 2}])
def test_a_second_run_encodes_nothing_and_learns_the_same(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lora: Any
) -> None:
    def run(name: str) -> list[dict[str, Any]]:
        options = {"data": str(folder / "captions"), "max_prompt_length": 2, "lora": lora}
        options |= {"encodings_dir": str(tmp_path / "store"), **start(folder)}
        config = SFTConfig(
            output_dir=str(tmp_path / name),
            objective={"name": "flow", "cond_dropout_prob": 0.5, **options},
            max_steps=6,
            per_device_train_batch_size=4,
            logging_steps=1,
            bf16=False,
        )
        return [{"loss": line.get("loss")} for line in metrics(train(config))]

    first = run("first")
    kept = {path.name for path in (tmp_path / "store").rglob("*.safetensors")}
    assert len(kept) == 5 + 6  # latents, and texts with the empty one

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a part of the pipeline is read")

    monkeypatch.setattr(PipelineParts, "_load", refuse)
    assert run("second") == first
    assert {path.name for path in (tmp_path / "store").rglob("*.safetensors")} == kept


def test_a_latent_is_kept_for_its_image_size_and_autoencoder(folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"

    def keep(**changes: Any) -> int:
        flow = build(folder, **start(folder, encodings_dir=str(store), **changes))
        latent = flow._encode(flow.data[""].items[0].image)  # type: ignore[union-attr]
        found = torch.equal(latent, flow._encode(flow.data[""].items[0].image))  # type: ignore[union-attr]
        assert found and latent.dtype == torch.float32
        return len(list(store.rglob("*.safetensors")))

    assert [keep(), keep(), keep(image_size=16)] == [1, 1, 2]
    other = Path(shutil.copytree(folder / "whole", tmp_path / "other"))
    [weights] = (other / "vae").glob("*.safetensors")
    weights.write_bytes(weights.read_bytes() + b" ")
    with pytest.raises(ValueError, match="vae|safetensors|cannot be read"):
        keep(model=str(other))  # another autoencoder, and not what is kept
