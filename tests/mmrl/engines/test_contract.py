"""What an engine promises of its weights and answers, and what is refused before weights load."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mmrl import rl
from mmrl.config import ConfigError, load_config, merge
from mmrl.engines.engine import EngineError, Request
from mmrl.engines.following import FollowingEngine
from mmrl.engines.sampler import check_server, connect
from mmrl.engines.sglang_server import SGLangServer
from mmrl.engines.vllm_server import VLLMServer
from mmrl.engines.weight_transfer import FileSender
from mmrl.generation.causal.sampler_config import AutoregressiveConfig
from mmrl.models import Policy, load_policy
from mmrl.models.families import names_of
from mmrl.pretrained.model_config import ModelConfig
from mmrl.runtime.sharding.sharding import Sharding
from mmrl.samplers import SamplerConfig
from mmrl.training.engine_weights import list_weights
from mmrl.training.trainable import train_parts
from tests.mmrl.engines.served import TASK, Served, serving, words, write_start

ASKED = Request([5, 6, 7], 1, 4, (), (), AutoregressiveConfig(temperature=0.0))


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_start(tmp_path_factory.mktemp("qwen3"))


@pytest.fixture(scope="module")
def engine(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(start, tmp_path_factory.mktemp("engine") / "log") as served:
        yield served


@pytest.fixture
def policy(start: Path) -> Policy:
    return load_policy(start, vq=None, dtype="float64")


def sampler(url: str, **options: Any) -> SamplerConfig:
    given = {"name": "vllm", "mode": "server", "url": url, **options}
    return merge(SamplerConfig, given, where="sampler")


def followed(policy: Policy, url: str, weights: Any = None) -> FollowingEngine:
    """An engine that has followed a policy to version 1, of other weights than its own."""
    with torch.no_grad():
        for weight in policy.network.parameters():
            weight.mul_(-1.5)
    policy.version = 1
    sharding = Sharding(None)  # type: ignore[arg-type]
    own = weights or (lambda every: list_weights(policy.network, sharding, True, every))
    found = connect(policy, sampler(url), own)
    found.follow()
    return found


def test_an_engine_writes_what_the_policy_would_after_an_update(
    policy: Policy, engine: Served
) -> None:
    followed(policy, engine.url)
    [answer] = policy.engine.generate([ASKED])
    row = torch.tensor([[*ASKED.prompt, *answer.tokens]])
    asked = torch.ones_like(row, dtype=torch.bool)
    asked[:, :3] = False
    best = policy.model(input_ids=row, positions=asked).logits.argmax(-1)
    assert answer.tokens == best.tolist() and answer.version == 1


def test_an_engine_that_lost_an_update_is_found_out(policy: Policy, engine: Served) -> None:
    twin = load_policy(policy.network.source.directory, vq=None, dtype="float64").network
    stale = [(public, twin.get_parameter(name)) for name, public in names_of(twin).items()]
    with pytest.raises(EngineError, match="weights of version 1"):
        followed(policy, engine.url, lambda every: iter(stale))


def test_an_interrupted_transfer_leaves_an_engine_that_refuses_until_all_is_sent(
    policy: Policy, engine: Served
) -> None:
    followed(policy, engine.url)
    following, asked_for = policy.engine, []
    send = following.weights

    def breaking(every: bool) -> Iterator[tuple[str, Tensor]]:
        asked_for.append(every)
        yield next(iter(send(every)))
        raise OSError("the wire broke")

    policy.version, following.weights = 2, breaking
    with pytest.raises(OSError, match="the wire broke"):
        following.follow()
    with pytest.raises(EngineError, match="no complete weights"):
        following.engine.generate([ASKED])
    following.engine.resume()
    with pytest.raises(EngineError, match="was not finished"):  # also by another client
        VLLMServer(following.config, FileSender())._generate([ASKED], 0)
    following.weights = lambda every: (asked_for.append(every), send(every))[1]
    following.follow()
    assert asked_for == [False, True] and following.generate([ASKED])[0].version == 2


@pytest.mark.parametrize("wrong", ["name", "shape"])
def test_a_part_with_a_foreign_weight_changes_nothing(
    policy: Policy, engine: Served, wrong: str
) -> None:
    followed(policy, engine.url)
    own = dict(policy.engine.weights(True))
    [name, *_] = own
    other = {f"{name}.x": own[name]} if wrong == "name" else {name: own[name][:1]}
    server = VLLMServer(policy.engine.config, FileSender())
    server.begin_update()
    with pytest.raises(EngineError, match="no weight"):
        server.send([*list(own.items())[1:], *other.items()])


def test_an_engine_of_another_model_is_refused(
    engine: Served, start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_start(tmp_path / "other", num_hidden_layers=2)
    assert rl.main(words(other, tmp_path / "run", engine=engine.url)) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert "num_hidden_layers is 1, and that of the policy 2" in said
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_server_that_is_not_there_or_cannot_take_weights_is_refused(
    engine: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EngineError, match="cannot be used"):
        check_server(sampler("http://127.0.0.1:9"), {})
    ask = VLLMServer.ask_all
    for said, why in (
        ({"results": [{"config": {}, "logprobs_mode": "raw_logprobs"}]}, "processed_logprobs"),
        ({"results": []}, "worker-extension-cls"),
    ):
        monkeypatch.setattr(VLLMServer, "ask_all", lambda *_, said=said: [said])
        with pytest.raises(EngineError, match=why):
            check_server(sampler(engine.url), {})
    monkeypatch.setattr(VLLMServer, "ask_all", ask)


def test_a_server_with_other_weights_than_it_was_given_is_refused(
    policy: Policy, engine: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = VLLMServer.ask

    def other(self: VLLMServer, path: str, content: Any = None) -> Any:
        return {"weight_version": "0"} if path == "/weight_info" else ask(self, path, content)

    monkeypatch.setattr(VLLMServer, "ask", other)
    with pytest.raises(EngineError, match="version '0', and not 1"):
        followed(policy, engine.url)


@pytest.mark.parametrize(
    "choice",
    [
        {"token_ids": [1], "logprobs": {"token_logprobs": [-0.1, -0.2]}},
        {"token_ids": [], "logprobs": {"token_logprobs": []}},
        {"token_ids": [1, 2, 3, 4, 5], "logprobs": {"token_logprobs": [-0.1] * 5}},
        {"token_ids": ["a"], "logprobs": {"token_logprobs": [-0.1]}},
        {"token_ids": [1], "logprobs": {"token_logprobs": [float("nan")]}},
        {"token_ids": [1], "logprobs": None},
        {"text": "four"},
        None,
    ],
)
def test_what_is_no_answer_is_an_error(choice: Any) -> None:
    server = VLLMServer(sampler("http://127.0.0.1:9"), FileSender())
    with pytest.raises(EngineError, match="without tokens or log-probs"):
        server.read_answer({"choices": [choice]}, ASKED, 0)


def test_sglang_is_asked_by_its_documented_names(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    reply = {"meta_info": {"output_token_logprobs": [[-0.5, 7, None], [-0.25, 8, None]]}}

    def ask_all(self: SGLangServer, path: str, contents: list[Any]) -> list[Any]:
        asked.append((path, contents))
        return [reply for _ in contents]

    monkeypatch.setattr(SGLangServer, "ask_all", ask_all)
    config = merge(SamplerConfig, {"name": "sglang", "url": "http://127.0.0.1:1"}, where="sampler")
    server = SGLangServer(config, FileSender())
    server.version = 3
    drawn = ASKED._replace(config=AutoregressiveConfig(), stop_ids=(9,), banned=(2,))
    assert server.generate([drawn])[0] == ([7, 8], [-0.5, -0.25], 3)
    [(path, [body])] = asked
    assert path == "/generate" and body["input_ids"] == [5, 6, 7] and body["return_logprob"]
    params = body["sampling_params"]
    assert (params["max_new_tokens"], params["sampling_seed"], params["top_k"]) == (4, 1, -1)
    assert (params["stop_token_ids"], params["logit_bias"]) == ([9], {"2": -100.0})


@pytest.mark.parametrize(
    ("sampler", "said"),
    [
        ({"mode": "server"}, "sampler.url"),
        ({"mode": "colocate", "url": "http://127.0.0.1:1"}, "empty with mode: colocate"),
        ({"mode": "colocate", "max_staleness": 1}, "sampler.max_staleness"),
        ({"url": "http://10.0.0.1:1"}, "sampler.token_env"),
        ({"url": "http://127.0.0.1:1", "top_p": 0.9}, "sampler.importance_sampling_mode"),
        ({"url": "http://127.0.0.1:1", "importance_sampling_clip_min": 5}, "clip_min"),
    ],
)
def test_settings_that_cannot_be_are_refused(start: Path, sampler: dict, said: str) -> None:
    stated = {"name": "vllm", "mode": "server", **sampler}
    text = ", ".join(f"{key}: {value}" for key, value in stated.items())
    given = [*words(start, Path("/nowhere")), f"{TASK}.sampler={{{text}}}"]
    with pytest.raises(ConfigError, match=said):
        load_config(rl.RLConfig, given)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ([f"{TASK}.algorithm.old_logprobs=rollout"], "old_logprobs"),
        (
            [f"{TASK}.eval_sampler={{name: vllm, mode: server, url: 'http://localhost:2'}}"],
            "one engine",
        ),
    ],
)
def test_methods_and_evaluations_that_do_not_fit_are_refused(
    start: Path, change: list[str], said: str
) -> None:
    given = words(start, Path("/nowhere"), *change, engine="http://127.0.0.1:1")
    with pytest.raises(ConfigError, match=said):
        load_config(rl.RLConfig, given)


def test_what_engines_store_together_is_sent_together(policy: Policy) -> None:
    settings = merge(ModelConfig, {"lora": {"r": 2, "target_modules": ["q"]}}, where="model")
    train_parts(policy.network, settings, seed=0)
    sharding: Any = SimpleNamespace(weights=lambda n: n.state_dict(), shards=False)
    names = {name for name, _ in list_weights(policy.network, sharding, True, every=False)}
    own = "model.layers.0.self_attn"
    projections = {f"{own}.{x}_proj.weight" for x in "qkvo"}
    assert names == projections | {f"{own}.q_norm.weight", f"{own}.k_norm.weight"}
    every = [name for name, _ in list_weights(policy.network, sharding, True, every=True)]
    assert sorted(every) == sorted(names_of(policy.network).values())
