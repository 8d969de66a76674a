"""Cached keys and values: exact where nothing changed, at the right positions, free when unused."""

import pytest
import torch

from tests.models.networks import small_network

IDS = torch.randint(38, (3, 14), generator=torch.Generator().manual_seed(5))


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_first_pass_gives_the_logits_of_no_cache_bit_for_bit(dtype: torch.dtype) -> None:
    model = small_network(num_kv_heads=2, qk_norm=True).to(dtype)
    attend = torch.arange(14).expand(3, -1) >= torch.tensor([[0], [2], [5]])
    asked = torch.rand(3, 14, generator=torch.Generator().manual_seed(6)) < 0.4
    for mask in (None, attend):
        options = {"input_ids": IDS, "attention_mask": mask, "positions": asked, "columns": (3, 30)}
        cache = model.new_cache().at(0, 14, 14)
        assert torch.equal(model(**options).logits, model(**options, cache=cache).logits)


@torch.no_grad()
@pytest.mark.parametrize(("start", "stop"), [(5, 14), (5, 9), (13, 14), (0, 14)])
@pytest.mark.parametrize("padding", [False, True])
def test_a_part_of_an_unchanged_row_has_the_logits_of_the_whole(
    start: int, stop: int, padding: bool
) -> None:
    model = small_network(num_kv_heads=2)
    attend = torch.arange(14).expand(3, -1) >= torch.tensor([[0], [2], [4]]) if padding else None
    cache = model.new_cache()
    whole = model(input_ids=IDS, attention_mask=attend, cache=cache.at(0, 14, 14)).logits
    part = model(
        input_ids=IDS[:, start:stop], attention_mask=attend, cache=cache.at(start, stop, 14)
    ).logits
    torch.testing.assert_close(part, whole[:, start:stop], atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_later_pass_writes_what_it_computed_for_those_after_it() -> None:
    """Two changes one after the other leave the keys of both, which one layer shows exactly."""
    model = small_network(num_layers=1)
    changed = IDS.clone()
    changed[:, 4:6], changed[:, 8:10] = 30, 31
    cache = model.new_cache()
    model(input_ids=IDS, cache=cache.at(0, 14, 14))
    model(input_ids=changed[:, 4:6], cache=cache.at(4, 6, 14))
    part = model(input_ids=changed[:, 8:10], cache=cache.at(8, 10, 14)).logits
    whole = model(input_ids=changed).logits
    torch.testing.assert_close(part, whole[:, 8:10], atol=1e-5, rtol=0)
    assert not torch.allclose(part, model(input_ids=IDS).logits[:, 8:10], atol=1e-3)
