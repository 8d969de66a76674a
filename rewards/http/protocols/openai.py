"""Judges behind OpenAI's chat completions (vLLM, SGLang, …), under the names of the client.

    {name: UnifiedReward, mode: client, protocol: openai, url: http://127.0.0.1:8080/v1,
     template: unified_reward}

This is the `judge` reward (`mmrl.rewards.judge`) with its client and all its options; `url` and
`token_env` are its `urls` and `api_key_env`, and `name` is the model where no `model` is
given. Images are PNG.
"""

from dataclasses import dataclass

from mmrl.config import ConfigError, check
from mmrl.rewards.judge import JudgeReward


@dataclass(kw_only=True, eq=False)
class OpenAIReward(JudgeReward):
    """A judge as a served reward."""

    name: str
    """Name of its metrics, and of the model where `model` is empty."""
    url: list[str]
    """Addresses that `/chat/completions` is appended to; several take turns."""
    token_env: str = ""
    """Environment variable that holds the server's key; empty for none."""
    model: str = ""
    """Name under which the server has it."""
    deadline_s: float = 300.0

    def __post_init__(self) -> None:
        for key in ("urls", "api_key_env"):
            if getattr(self, key):
                other = {"urls": "url", "api_key_env": "token_env"}[key]
                raise ConfigError(f"{self.name}.{key} is set; with mode: client it is {other}.")
        check(self.backend == "openai", f"{self.name}.backend", self.backend, "openai")
        check(bool(self.url), f"{self.name}.url", self.url, "one address or several")
        check(
            "/" not in self.name,
            "name",
            self.name,
            "without a slash",
            "It names the metrics; the model's name belongs into model.",
        )
        self.urls, self.api_key_env = self.url, self.token_env
        self.model = self.model or self.name
        if self.model == "judge":
            raise ConfigError("judge.model has no value; name the model that the server has.")
        super().__post_init__()
