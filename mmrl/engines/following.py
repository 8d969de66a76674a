"""An engine whose weights follow those of a policy, and that may write ahead of its updates.

    follow()             when a step or an evaluation begins to sample
    generate(requests)   answers those that it was asked for before from what is there already
    ask_ahead(requests)  of a later step; written while the trainer updates

Requests at work finish under the version that they began with: `follow` waits for them, and only
then sends weights. What was asked ahead is not saved, so a resumed run asks for it again, of the
weights of its checkpoint.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import torch
from accelerate import PartialState
from torch import Tensor

from mmrl.engines.engine import Answer, Engine, EngineError, Request
from mmrl.engines.vllm_in_process import VLLMInProcess
from mmrl.generation.causal.engine_config import EngineConfig
from mmrl.generation.causal.sampler_config import AutoregressiveConfig
from mmrl.rewards.http import stop
from mmrl.runtime.activity import activity
from mmrl.runtime.interrupt import check

if TYPE_CHECKING:
    from mmrl.models import Policy

PROBE = "The answer is"
PROBE_TOKENS = 8
WRONG = 0.5
"""How much less likely than the best a token of the probe may be, in log-prob: rounding of half
precision, not other weights."""


class FollowingEngine:
    """An engine and the policy that it follows.

    Args:
        weights: yields the names and whole tensors of the policy, all of them or those that
            training changes; all processes take part. None where nothing is ever sent.
        sends: whether this process sends them, as the main one does to a server.

    Attributes:
        seconds: of the last update of the engine.
    """

    def __init__(
        self,
        engine: Engine,
        policy: Policy,
        config: EngineConfig,
        weights: Callable[[bool], Iterable[tuple[str, Tensor]]] | None = None,
        sends: bool = True,
    ) -> None:
        self.engine, self.policy, self.config = engine, policy, config
        self.weights, self.sends, self.seconds = weights, sends, 0.0
        self.ahead: dict[int, tuple[Future[list[Answer]], int]] = {}
        self.ended = threading.Event()
        self.pool = ThreadPoolExecutor(8, "engine", stop.SIGNAL.set, (self.ended,))
        if weights is None:
            engine.version = policy.version
            self._prove()

    def follow(self) -> None:
        """Give the engine the weights of the policy, and let it prove that it has them; all
        processes call this. Raises EngineError: it cannot be updated, or writes other tokens."""
        version = self.policy.version
        if self.engine.version == version or self.weights is None:
            return
        with activity("updating the engine"):
            started = time.perf_counter()
            wait([future for future, _ in self.ahead.values()])
            PartialState().wait_for_everyone()
            weights = self.weights(self.engine.version is None)
            self.engine.version = None  # on all processes, should one of them fail
            if self.sends:
                self.engine.pause()
                self.engine.begin_update()
                self.engine.send(weights)
                self.engine.finish_update(version)
                self.engine.resume()
            else:
                for _ in weights:  # each gathers from all processes
                    pass
            PartialState().wait_for_everyone()
            self.engine.version = version
            self.seconds = time.perf_counter() - started
        self._prove()

    @torch.no_grad()
    def _prove(self) -> None:
        """Compare tokens of the engine, the most likely ones and drawn ones, with the policy."""
        tokenizer, greedy = self.policy.tokenizer, AutoregressiveConfig(temperature=0.0)
        prompt = tokenizer(PROBE, add_special_tokens=False)["input_ids"]
        probe = Request(prompt, 0, PROBE_TOKENS, (), (), greedy)
        likely, drawn = self.engine.generate([probe, probe._replace(config=AutoregressiveConfig())])
        logp = self._read(prompt, likely)
        behind = float((logp.amax(-1) - logp.gather(-1, _column(likely))[:, 0]).max())
        own = self._read(prompt, drawn).gather(-1, _column(drawn))[:, 0]
        apart = float((own - own.new_tensor(drawn.logprobs)).abs().mean())
        if not (behind <= WRONG and apart <= self.config.max_logp_difference):
            raise EngineError(
                f"{self.engine} says that it has the weights of version {likely.version}; its most"
                f" likely tokens are {behind:.2g} less likely (log-prob) than the policy's, and"
                f" those that it draws {apart:.2g} apart. Is it an engine of this checkpoint?"
            )

    def _read(self, prompt: list[int], answer: Answer) -> Tensor:
        """Log-probs [n, V] of the policy at the tokens of an answer."""
        row = torch.tensor([prompt + answer.tokens], device=self.policy.device)
        asked = torch.zeros_like(row, dtype=torch.bool)
        asked[:, len(prompt) :] = True
        with self.policy.sampling(False):
            found = self.policy.model(input_ids=row, positions=asked).logits
        return found.float().log_softmax(-1).cpu()

    def generate(self, requests: Sequence[Request]) -> list[Answer]:
        """The answers in order, those asked ahead as they were written."""
        found = {
            each.seed: self.ahead.pop(each.seed) for each in requests if each.seed in self.ahead
        }
        missing = [each for each in requests if each.seed not in found]
        answers = iter(self._generate(missing) if missing else ())
        return [_take(*found[r.seed]) if r.seed in found else next(answers) for r in requests]

    def _generate(self, requests: Sequence[Request]) -> list[Answer]:
        if isinstance(self.engine, VLLMInProcess):
            return self.engine.generate(requests)
        future = self.pool.submit(self.engine.generate, requests)
        return [_take(future, place) for place in range(len(requests))]

    def ask_ahead(self, requests: Sequence[Request]) -> None:
        """Begin to write texts of a later step; those that were begun already go on."""
        new = [each for each in requests if each.seed not in self.ahead]
        if new:
            future = self.pool.submit(self.engine.generate, new)
            self.ahead |= {each.seed: (future, n) for n, each in enumerate(new)}

    @property
    def waiting(self) -> int:
        """Texts that are asked for ahead and not there yet."""
        return sum(not future.done() for future, _ in self.ahead.values())

    def rest(self, away: bool) -> None:
        """Let an engine in this process leave the memory of the device, or take it again."""
        if isinstance(self.engine, VLLMInProcess):
            self.engine.sleep() if away else self.engine.wake()

    def close(self) -> None:
        """End what is at work, and free the engine."""
        self.ended.set()
        self.pool.shutdown(wait=True, cancel_futures=True)
        self.engine.close()


def _take(future: Future[list[Answer]], place: int) -> Answer:
    while not wait([future], stop.TICK).done:
        check()
    return future.result()[place]


def _column(answer: Answer) -> Tensor:
    return torch.tensor(answer.tokens)[:, None]
