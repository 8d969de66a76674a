"""The command that merges an adapter writes an ordinary checkpoint."""

from pathlib import Path

import pytest
import torch

from mmrl.config import ConfigError
from mmrl.models import load_model
from mmrl.models.policy import load_tokenizer
from tests import by_path
from tests.models.llada_tokenizer import small_tokenizer
from tests.models.test_adapter_weights import write

script = by_path.load(Path(__file__).parents[2] / "scripts", "merge_adapter")


def test_the_merged_model_is_the_adapter_on_its_base_with_the_tokenizer(tmp_path: Path) -> None:
    network, folder = write(tmp_path)
    small_tokenizer().save_pretrained(tmp_path / "base")
    options = {"adapter": str(folder), "out": str(tmp_path / "merged"), "dtype": "float32"}
    script.merge(script.Config(**options))
    assert not (tmp_path / "merged" / "adapter_config.json").exists()
    ids = torch.arange(12).view(2, 6)
    with torch.no_grad():
        merged = load_model(tmp_path / "merged")(input_ids=ids).logits
        torch.testing.assert_close(merged, network(input_ids=ids).logits, atol=1e-4, rtol=1e-4)
    assert len(load_tokenizer(tmp_path / "merged")) == len(small_tokenizer())
    with pytest.raises(ConfigError, match="a folder that does not exist yet"):
        script.Config(**options)
    with pytest.raises(ConfigError, match="holds no adapter_config.json"):
        script.merge(script.Config(adapter=str(tmp_path / "base"), out=str(tmp_path / "other")))
