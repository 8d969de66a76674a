"""The budget of memory: never above its limit, and everything taken comes back."""

import time
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from mmrl.rewards.server.refusal import Refusal
from mmrl.rewards.server.request_memory import LEAST, Budget


def test_threads_that_take_and_give_back_never_exceed_it_and_leave_nothing() -> None:
    budget, most = Budget(20 * LEAST), []

    def request(n: int) -> int:
        random, refusals = Random(n), 0
        for _ in range(50):
            try:
                with budget.lease() as lease:
                    for _ in range(3):
                        lease.hold(random.randint(0, 8 * LEAST))
                        most.append(budget.held)
                        time.sleep(0.0005)
            except Refusal as refusal:
                assert (refusal.status, refusal.retry_after) == (429, 1)
                refusals += 1
        return refusals

    with ThreadPoolExecutor(8) as pool:
        refusals = sum(pool.map(request, range(8)))
    assert max(most) <= budget.limit and budget.held == 0
    assert refusals > 0, "eight of up to eight do not fit into twenty"


def test_what_never_fits_is_refused_for_good() -> None:
    budget = Budget(4 * LEAST)
    with pytest.raises(Refusal) as refused, budget.lease() as lease:
        lease.hold(5 * LEAST)
    assert (refused.value.status, refused.value.code) == (413, "too_much_memory")
    assert refused.value.retry_after is None and budget.held == 0
