"""Logits column by column are those of the rows, turned."""

import pytest
import torch

from mmrl.models.network.output_head import OutputHead
from mmrl.randomness import generator


@pytest.mark.parametrize("biased", [False, True], ids=["plain", "biased"])
@pytest.mark.parametrize("into", [False, True], ids=["new", "given"])
def test_logits_by_column_are_those_by_row(biased: bool, into: bool) -> None:
    draws = generator("test", "output head")
    weight, bias, x = (
        torch.randn(*shape, generator=draws, dtype=torch.float64)
        for shape in ((7, 4), (7,), (3, 4))
    )
    head = OutputHead(weight, bias if biased else None)
    out = torch.full((7, 3), torch.nan, dtype=torch.float64) if into else None
    found = head.by_column(x, out)
    torch.testing.assert_close(found, head(x).T)
    assert out is None or found.data_ptr() == out.data_ptr()
