"""Named draws: equal names give equal numbers, and nothing touches the global generator."""

import torch

from mmrl.randomness import generator, permutation, stable_seed


def test_a_name_gives_the_same_seed_on_every_machine() -> None:
    assert stable_seed("rollout", 3, 1) == 5445246362365510487


def test_different_names_give_different_seeds() -> None:
    names = [("a", "b"), ("ab",), ("a", "b", 1), ("a", "b", "1"), (1, 11), (11, 1), (1, 1, 1)]
    assert len({stable_seed(*name) for name in names}) == len(names)


def test_equal_names_give_equal_draws_that_do_not_depend_on_each_other() -> None:
    first = torch.rand(5, generator=generator(0, "masks", 4))
    torch.rand(100, generator=generator(0, "masks", 5))
    assert torch.equal(first, torch.rand(5, generator=generator(0, "masks", 4)))
    assert not torch.equal(first, torch.rand(5, generator=generator(1, "masks", 4)))


def test_the_global_generator_is_left_alone() -> None:
    state = torch.get_rng_state()
    torch.rand(3, generator=generator("anything"))
    permutation(10, "order")
    assert torch.equal(state, torch.get_rng_state())


def test_a_permutation_holds_every_index_once_and_follows_its_name() -> None:
    order = permutation(50, 0, "epoch", 1)
    assert sorted(order) == list(range(50)) and order != list(range(50))
    assert order == permutation(50, 0, "epoch", 1) != permutation(50, 0, "epoch", 2)
