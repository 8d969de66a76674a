"""Which steps are stochastic, by the tables of UniRL and MixGRPO and by counting."""

from collections import Counter
from typing import Any

import pytest
import torch

from mmrl.config import ConfigError, load_config
from mmrl.generation.flow.windows import WindowConfig, choose_steps
from mmrl.randomness import generator


def choose(steps: int, iterations: int, **settings: Any) -> list[list[int]]:
    """The steps of one row at each iteration."""
    config, rng = WindowConfig(**settings), torch.Generator().manual_seed(0)
    chosen = [choose_steps(config, steps, n, rng, 1)[0] for n in range(iterations)]
    return [each.nonzero().flatten().tolist() for each in chosen]


def stays(steps: int, iterations: int, **settings: Any) -> list[tuple[int, int]]:
    """Starts of a progressive window, and how many iterations it stays at each."""
    found: list[tuple[int, int]] = []
    for first, *others in choose(steps, iterations, window_rule="progressive", **settings):
        assert others == list(range(first + 1, first + settings["window_size"]))
        again = bool(found) and found[-1][0] == first
        found[-1:] = [(first, found[-1][1] + 1)] if again else [*found[-1:], (first, 1)]
    return found


def test_all_steps_but_the_last_are_stochastic_by_default() -> None:
    assert choose(10, 1) == [[*range(9)]]
    assert choose(10, 1, window_range=[0, 10]) == [[*range(10)]]
    assert choose(10, 1, window_fraction=[0.2, 0.9]) == [[*range(2, 9)]]
    assert choose(100, 1, window_fraction=[0.0, 0.29]) == [[*range(29)]]


def test_sparse_steps_by_iteration_are_those_of_unirl() -> None:
    settings = {"window_rule": "sparse", "window_draw": "iteration", "window_fraction": [0, 0.5]}
    wanted = [[2, 3, 4], [1, 2, 3], [0, 1, 2], [0, 2, 4]]
    assert choose(10, 4, window_size=3, **settings) == wanted
    wanted = [[3, 4], [1, 2], [1, 3], [0, 3], [2, 4], [2, 4], [1, 2], [3, 4], [1, 2], [1, 4]]
    assert choose(10, 10, window_size=2, **settings) == wanted


def test_random_windows_by_iteration_are_those_of_unirl() -> None:
    found = choose(10, 12, window_size=2, window_draw="iteration", window_range=[0, 10])
    assert [start for start, _ in found] == [7, 4, 7, 7, 6, 6, 4, 8, 6, 3, 6, 1]


def test_progressive_windows_are_those_of_unirl() -> None:
    once = {"window_size": 4, "window_overlap": 1, "window_range": [0, 25]}
    every = [(start, 25) for start in range(0, 22, 3)]
    assert stays(25, 201, **once) == [*every[:-1], (21, 26)]
    assert stays(25, 201, **once, window_roll_back=True) == [*every, (0, 1)]
    found = stays(10, 40, window_size=4, window_range=[0, 10], window_iterations=3)
    assert found == [(0, 3), (4, 37)]
    options = {"window_size": 2, "window_overlap": 1, "window_iterations": 4}
    found = stays(10, 40, window_range=[2, 10], window_roll_back=True, **options)
    assert found == [(start, 4) for start in (2, 3, 4, 5, 6, 7, 8, 2, 3, 4)]


def test_decaying_windows_are_those_of_mixgrpo() -> None:
    options = {"window_range": [0, 23], "window_decay": "linear"}
    found = stays(25, 37, window_size=2, window_iterations=6, **options)
    counts = [6, 5, 5, 4, 4, 3, 3, 2, 2, 2, 1]
    assert found == list(zip(range(0, 22, 2), counts, strict=True))
    found = stays(25, 37, window_size=3, window_iterations=8, **options)
    assert found == list(zip(range(0, 19, 3), [8, 7, 6, 5, 4, 4, 3], strict=True))


def test_a_random_window_starts_anywhere_in_its_range_and_is_one_for_a_group() -> None:
    config = WindowConfig(window_size=3, window_range=[1, 7])
    starts = Counter()
    for group in range(400):
        chosen = choose_steps(config, 10, 0, generator(group), 4)
        assert chosen.shape == (4, 10) and chosen.eq(chosen[:1]).all()
        first, *others = chosen[0].nonzero().flatten().tolist()
        assert others == [first + 1, first + 2]
        starts[first] += 1
        again = choose_steps(config, 10, 5, generator(group), 2)
        assert again[0].equal(chosen[0])  # by the group's generator alone
    assert starts.keys() == {1, 2, 3, 4} and min(starts.values()) > 70


@pytest.mark.parametrize(("rows", "size"), [(18, 1), (10, 1), (3, 1), (7, 3)])
def test_stratified_windows_are_spread_evenly_over_a_group(rows: int, size: int) -> None:
    config = WindowConfig(window_rule="stratified", window_size=size)
    places, total = 9 - size + 1, Counter()
    for n in range(60):
        chosen = choose_steps(config, 10, n, generator(n), rows)
        assert chosen.sum(1).eq(size).all() and not chosen[:, -1].any()
        starts = Counter(chosen.int().argmax(1).tolist())
        assert max(starts.values()) - min(starts[at] for at in range(places)) <= 1
        total += starts
    assert total.keys() == set(range(places))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("window_range=[0,12]", r"sampler.window_range is \[0, 12\]; .* within the 10 steps"),
        ("window_range=[3,3]", r"sampler.window_range is \[3, 3\]"),
        ("window_range=[-1,3]", r"sampler.window_range is \[-1, 3\]"),
        ("window_range=[3]", r"sampler.window_range is \[3\]"),
        ("window_fraction=[0,1.2]", r"sampler.window_fraction is \[0.0, 1.2\]"),
        ("window_fraction=[0.01,0.05]", "one or more from low to below high"),
        ("window_fraction=[0,1] window_range=[0,5]", "window_fraction is .*null with window_range"),
        ("window_range=[1,4] window_size=4", "window_size is 4; it must be at most the 3 of its"),
        ("window_size=10", "window_size is 10; it must be at most the 9 of its range"),
        ("window_size=2 window_overlap=2", "window_overlap is 2; .* below the window_size, 2"),
        ("window_rule=randm", "window_rule is 'randm'; .*Did you mean 'random'"),
        ("window_size=0", "window_size is 0; it must be null or at least 1"),
    ],
)
def test_a_window_outside_the_schedule_is_refused(words: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_config(WindowConfig, words.split()).find_place(10)
