"""The head of logits, column by column; the value head, and the network it stands on."""

from typing import Any

import pytest
import torch

from mmrl.models.network.token_network import OutputHead
from mmrl.models.network.value_head import ValueHead, ValueNetwork, copy_backbone
from mmrl.randomness import generator
from tests.models.networks import small_network

TOKENS = torch.randint(0, 39, (2, 7), generator=torch.Generator().manual_seed(0))
SOME = torch.tensor([[0, 1, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0, 1]]).bool()
KEYS = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1]])


@torch.no_grad()
def test_hidden_states_are_what_logits_are_computed_from() -> None:
    network = small_network()
    ask: dict[str, Any] = {"input_ids": TOKENS, "attention_mask": KEYS}
    hidden = network.hidden_states(**ask)
    assert hidden.shape == (2, 7, 32)
    assert torch.equal(network(**ask).logits, hidden @ network.head.weight.T)
    torch.testing.assert_close(network.hidden_states(**ask, positions=SOME), hidden[SOME])


@pytest.mark.parametrize("tied", [False, True])
def test_a_network_of_its_own_has_the_policys_features_and_no_output_matrix(tied: bool) -> None:
    policy = small_network(tied_head=tied)
    head = ValueHead(32, "cpu", torch.float32)
    torch.nn.init.normal_(head.weight)
    model = ValueNetwork(copy_backbone(policy), head)
    values = model(input_ids=TOKENS, attention_mask=KEYS, positions=SOME)
    expected = policy.hidden_states(TOKENS, attention_mask=KEYS)[SOME] @ head.weight[0]
    torch.testing.assert_close(values, expected)
    own = {name.removeprefix("backbone.") for name, _ in model.named_parameters()}
    assert own == {n for n, _ in policy.named_parameters() if n != "head.weight"} | {"head.weight"}
    values.sum().backward()
    assert all(p.grad is None for p in policy.parameters())
    assert all(p.grad is not None for p in model.parameters())


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
