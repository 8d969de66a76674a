"""Pickle servers of flow_grpo and MaskGRPO: what is sent, what is believed, what is refused."""

import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mmrl.config import ConfigError
from mmrl.rewards import PartialFailure, build_reward
from mmrl.rewards.http.service import Refused
from mmrl.rewards.scoring.failures import RewardError
from mmrl.rewards.scoring.scorer import Scorer
from mmrl.types import Prompt, Sample
from tests.rewards.scripted_server import Answered, Asked, Scripted, scripted

GENEVAL = {"tag": "counting", "include": [{"class": "bus", "count": 2}]}


def entry(server: Scripted, name: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, "mode": "client", "protocol": "flow_grpo", "url": server.url, **changes}


def pictures(number: int) -> list[Sample]:
    """Grey images, each lighter than the one before."""
    shades = [Image.new("RGB", (32, 24), (9 * n,) * 3) for n in range(number)]
    return [Sample(f"prompt {n}", image, dict(GENEVAL)) for n, image in enumerate(shades)]


def brightness(data: bytes) -> float:
    image = Image.open(io.BytesIO(data), formats=["JPEG"])
    return float(np.asarray(image.convert("L")).mean()) / 9


def honest(asked: Asked) -> Answered:
    """As the servers do: a plain pickle in, a plain pickle out."""
    if asked.method == "GET":
        return Answered(status=405)
    assert asked.path == "/"
    request = pickle.loads(asked.body)
    found = [brightness(data) for data in request["images"]]
    if "meta_datas" in request:
        assert request["only_strict"] is True
        assert [each["tag"] for each in request["meta_datas"]] == ["counting"] * len(found)
        strict = [float(n % 2) for n in range(len(found))]
        group = {"counting": strict, "colors": [-10.0] * len(found)}
        return pickled(
            {
                "scores": found,
                "rewards": [0.0] * len(found),
                "strict_rewards": strict,
                "group_rewards": group,
                "group_strict_rewards": group,
            }
        )
    if "prompts" in request:
        assert all(prompt.startswith("prompt ") for prompt in request["prompts"])
        return pickled({"scores": np.array(found, np.float32)})
    return pickled({"outputs": [np.float64(each) for each in found]})


def pickled(value: Any) -> Answered:
    return Answered(pickle.dumps(value))


@pytest.mark.parametrize("name", ["geneval", "deqa", "hpsv3", "unifiedreward"])
def test_every_server_is_sent_what_it_reads_and_its_scores_stay_in_order(name: str) -> None:
    sent = {"geneval": {"images", "meta_datas", "only_strict"}, "deqa": {"images"}}
    with scripted(honest) as server:
        scores = build_reward(entry(server, name, batch_size=4))(pictures(10))
        assert scores == pytest.approx(range(10), abs=0.1)
        assert len(server.asked) == 3
        for asked in server.asked:
            found = set(pickle.loads(asked.body))
            assert found == sent.get(name, {"images", "prompts"})


def test_the_sum_of_maskgrpo_has_a_fifth_of_what_the_servers_score() -> None:
    with scripted(honest) as server:
        fifth = {"scale": 0.2, "timeout_s": 60}
        entries = [
            entry(server, "hpsv3", **fifth),
            entry(server, "unifiedreward", **fifth),
            entry(server, "geneval", weight=0.5),
        ]
        scores = Scorer(entries).score(pictures(4))
    assert scores.total == pytest.approx([0.9 * n for n in range(4)], abs=0.15)
    for name in ("hpsv3", "unifiedreward"):
        assert scores.components[name] == pytest.approx(range(4), abs=0.1)
    with pytest.raises(ConfigError, match="checkpoint"):
        build_reward(entry(server, "hpsv3", checkpoint="HPSv3.safetensors"))


def test_a_request_names_nothing_at_all() -> None:
    class Text(str):
        """A text that is more than one."""

    batch = [
        Sample(Text(s.prompt), s.completion, {**s.metadata, Text("by"): Text("me")})
        for s in pictures(2)
    ]
    with scripted(honest) as server:
        for name in ("geneval", "hpsv3"):
            build_reward(entry(server, name))(batch)

        class Strict(pickle.Unpickler):
            def find_class(self, module: str, name: str) -> Any:
                raise AssertionError(f"{module}.{name}")

        for asked in server.asked:
            Strict(io.BytesIO(asked.body)).load()


class Malicious:
    """Runs a command when it is loaded."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def test_a_malicious_reply_is_refused_and_stops_the_run_before_anything_of_it_happens(
    tmp_path: Path,
) -> None:
    canary = tmp_path / "canary"
    with scripted(lambda asked: pickled({"outputs": Malicious(f"touch {canary}")})) as server:
        scorer = Scorer([entry(server, "deqa")])
        with pytest.raises(RewardError, match=r"refused, and nothing in it was run.*system"):
            scorer.score(pictures(3))
        assert len(server.asked) == 1 and not canary.exists()


WRONG: dict[str, Callable[[], bytes]] = {
    "too few": lambda: pickle.dumps({"outputs": [1.0, 2.0]}),
    "too many": lambda: pickle.dumps({"outputs": [1.0, 2.0, 3.0, 4.0]}),
    "a table": lambda: pickle.dumps({"outputs": np.zeros((3, 2))}),
    "one number": lambda: pickle.dumps({"outputs": 1.0}),
    "other names": lambda: pickle.dumps({"scores": [1.0, 2.0, 3.0]}),
    "no dict": lambda: pickle.dumps([1.0, 2.0, 3.0]),
    "texts": lambda: pickle.dumps({"outputs": ["1", "2", "3"]}),
    "truths": lambda: pickle.dumps({"outputs": [True, False, np.True_]}),
    "nan": lambda: pickle.dumps({"outputs": [float("nan"), np.float32("inf"), None]}),
    "truncated": lambda: pickle.dumps({"outputs": [1.0, 2.0, 3.0]})[:-3],
    "JSON": lambda: b'{"outputs": [1.0, 2.0, 3.0]}',
    "nothing": lambda: b"",
}


@pytest.mark.parametrize("name", WRONG)
def test_an_answer_that_does_not_fit_gives_no_score(name: str) -> None:
    with scripted(lambda asked: Answered(WRONG[name]())) as server:
        with pytest.raises(PartialFailure) as caught:
            build_reward(entry(server, "deqa"))(pictures(3))
        assert all(isinstance(each, ValueError) for each in caught.value.results)


def test_an_item_that_the_server_fails_on_fails_alone_and_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mmrl.rewards.http.service.FIRST_PAUSE", 0.01)

    def answer(asked: Asked) -> Answered:
        images = pickle.loads(asked.body)["images"]
        return Answered(b"boom", 500) if any(brightness(d) > 6.5 for d in images) else honest(asked)

    with scripted(answer) as server:
        reward = build_reward(entry(server, "deqa"))
        with pytest.raises(PartialFailure) as caught:
            reward(pictures(8))
        *fine, ill = caught.value.results
        assert fine == pytest.approx(list(range(7)), abs=0.1)
        assert isinstance(ill, Refused) and "answered 500" in str(ill)


@pytest.mark.parametrize("status", [200, 404])
def test_another_server_at_the_address_is_not_ready(status: int) -> None:
    with scripted(lambda asked: Answered(b"{}", status)) as server:
        said = build_reward(entry(server, "deqa")).ready()  # type: ignore[attr-defined]
        assert "does not speak this protocol" in said


def test_a_prompt_without_what_geneval_reads_is_known_before_anything_is_sampled() -> None:
    with scripted(honest) as server:
        scorer = Scorer([entry(server, "geneval")])
        scorer.check([Prompt("1", "text_to_image", "p", metadata=GENEVAL)])
        bad = {**GENEVAL, "include": [{"class": "bus", "count": 0}]}
        for metadata, said in (({}, "the metadata tag and include"), (bad, r"include\[0\] is")):
            with pytest.raises(ConfigError, match=said):
                scorer.check([Prompt("1", "text_to_image", "p", metadata=metadata)])


def test_texts_fail_alone_and_only_known_servers_are_spoken_to() -> None:
    with scripted(honest) as server:
        with pytest.raises(PartialFailure) as caught:
            build_reward(entry(server, "deqa"))([Sample("p", "a text"), *pictures(1)])
        assert "scores images" in str(caught.value.results[0])
        assert caught.value.results[1] == pytest.approx(0, abs=0.1)
        with pytest.raises(ConfigError, match="name is 'genevall'; allowed: deqa, geneval"):
            build_reward(entry(server, "genevall"))
        with pytest.raises(ConfigError, match="jpeg_quality is 0"):
            build_reward(entry(server, "deqa", jpeg_quality=0))
