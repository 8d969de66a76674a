"""What engines behind an address have in common: requests and their answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from mmrl.config import ConfigError
from mmrl.engines.engine import Answer, Engine, EngineError, Request, check_answer
from mmrl.engines.weight_transfer import Sender
from mmrl.generation.causal.engine_config import EngineConfig
from mmrl.rewards.http import read_token
from mmrl.rewards.http.service import Refused, Service, Unreachable


class HTTPEngine(Engine):
    """An engine behind an address; `READY` and `COMPLETE` are the paths of its state and of a
    text. Raises ConfigError: a URL that is not valid, or no token in the variable."""

    READY: ClassVar[str]
    COMPLETE: ClassVar[str]

    def __init__(self, config: EngineConfig, sender: Sender) -> None:
        self.config, self.sender = config, sender
        secret = read_token(config.token_env, "sampler.token_env")
        try:
            self.service = Service([config.url], secret, config.concurrency, config.timeout_s)
        except ValueError as error:
            raise ConfigError(f"sampler.url: {error}") from error

    def __str__(self) -> str:
        return f"the engine at {self.config.url}"

    def close(self) -> None:
        """The server is another's."""

    def ask(self, path: str, content: Any = None) -> Any:
        """The JSON that is answered to JSON, or to GET without content. Raises EngineError."""
        return self.ask_all(path, [content])[0]

    def ask_all(self, path: str, contents: Sequence[Any]) -> list[Any]:
        """The same of several at a time, in order."""
        try:
            return self.service.ask_all(path, contents)
        except (Unreachable, Refused) as error:
            raise EngineError(f"{self} does not answer as it must: {error}") from error

    def health(self) -> str:
        def problem(said: Any) -> str:
            return str(said) if isinstance(said, Refused) else ""

        return self.service.why_not_ready(self.READY, problem, str(self))

    @abstractmethod
    def build_body(self, request: Request) -> dict[str, Any]:
        """A request as `COMPLETE` takes it."""

    @abstractmethod
    def read_body(self, said: Any) -> tuple[list[int], list[float]]:
        """Tokens and log-probs of its answer. Raises KeyError, IndexError, TypeError, ValueError:
        it has none."""

    def read_answer(self, said: Any, request: Request, version: int) -> Answer:
        """The answer to a request. Raises EngineError: it is none."""
        try:
            return check_answer(*self.read_body(said), request, version)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise EngineError(f"{self} answered without tokens or log-probs ({error!r})") from error

    def _generate(self, requests: Sequence[Request], version: int) -> list[Answer]:
        said = self.ask_all(self.COMPLETE, [self.build_body(each) for each in requests])
        pairs = zip(said, requests, strict=True)
        return [self.read_answer(each, request, version) for each, request in pairs]
