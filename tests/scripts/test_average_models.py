"""The command that averages models writes an ordinary checkpoint of the mean."""

from pathlib import Path

import pytest
import torch

from mmrl.config import ConfigError
from mmrl.models import load_model
from mmrl.models.policy import load_tokenizer
from tests import by_path
from tests.models.amused import write_amused

ROOT = Path(__file__).parents[2]
CHECKPOINTS = ROOT / "datasets/shapes/checkpoints"
script = by_path.load(ROOT / "scripts", "average_models")
NAMES = ("mmada", "mmada_sums", "mmada_questions")


def test_every_weight_is_the_weighted_mean_and_the_tokenizer_that_of_the_first(
    tmp_path: Path,
) -> None:
    models, shares = [str(CHECKPOINTS / name) for name in NAMES], (0.25, 0.5, 0.25)
    weights = [2 * share for share in shares]
    out = str(tmp_path / "mean")
    options = {"models": models, "weights": weights, "out": out, "dtype": "float32"}
    script.average(script.Config(**options))
    states = [load_model(path, "float32").state_dict() for path in models]
    for name, tensor in load_model(out, "float32").state_dict().items():
        mean = sum(share * state[name] for share, state in zip(shares, states, strict=True))
        torch.testing.assert_close(tensor, mean, atol=1e-6, rtol=1e-5)
    assert len(load_tokenizer(Path(out))) == len(load_tokenizer(CHECKPOINTS / "mmada"))
    with pytest.raises(ConfigError, match="a folder that does not exist yet"):
        script.Config(**options)


def test_the_mean_of_pipelines_is_a_pipeline_with_one_tokenizer(tmp_path: Path) -> None:
    pytest.importorskip("diffusers")
    one = write_amused(tmp_path / "one")
    script.average(script.Config(models=[str(one)] * 2, out=str(tmp_path / "mean")))
    written, source = (
        {path.relative_to(folder) for path in folder.rglob("*")}
        for folder in (tmp_path / "mean", one)
    )
    assert written - source == {Path("SHA256SUMS")} and written >= source
    assert len(load_tokenizer(tmp_path / "mean")) == len(load_tokenizer(one))


def test_other_architectures_and_wrong_weights_are_refused(tmp_path: Path) -> None:
    models, out = [str(CHECKPOINTS / name) for name in ("mmada", "llada_v")], str(tmp_path / "mean")
    with pytest.raises(ValueError, match="llada_v' do not fit"):
        script.average(script.Config(models=models, out=out))
    for weights in ([1.0], [1.0, 0.0]):
        with pytest.raises(ConfigError, match="2 positive numbers, or null"):
            script.Config(models=models, weights=weights, out=out)
    with pytest.raises(ConfigError, match="two or more directories"):
        script.Config(models=models[:1], out=out)
