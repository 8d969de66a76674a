"""The vLLM judge: its process, devices and faults, on a module with vLLM's signatures.

vLLM itself needs a GPU build; where it is installed its signatures are compared with the calls.
"""

import importlib.util
import inspect
import json
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mmrl.config import ConfigError
from mmrl.rewards import PartialFailure, build_reward
from mmrl.rewards.judging.offline import build_environment
from mmrl.types import Sample

MODULE = '''
    """vllm 0.33's `LLM` and `SamplingParams` as the judge calls them."""

    import json, os, time
    from types import SimpleNamespace

    from vllm.exceptions import VLLMValidationError
    from vllm.sampling_params import SamplingParams

    print("vLLM writes to its standard output")


    class LLM:
        def __init__(self, model, *, tensor_parallel_size=1, dtype="auto", seed=0,
                     gpu_memory_utilization=0.92, enforce_eager=False, max_model_len=None):
            if model == "none":
                raise ValueError("no such model")
            self.settings = {"model": model, "tensor_parallel_size": tensor_parallel_size,
                             "gpu_memory_utilization": gpu_memory_utilization, "dtype": dtype,
                             "max_model_len": max_model_len, "enforce_eager": enforce_eager}
            self.calls = 0

        def chat(self, messages, sampling_params=None, use_tqdm=True, lora_request=None,
                 priority=None, chat_template=None, chat_template_content_format="auto",
                 add_generation_prompt=True, continue_final_message=False, tools=None,
                 chat_template_kwargs=None, tokenization_kwargs=None, mm_processor_kwargs=None):
            self.calls += 1
            assert len(messages) == len(sampling_params) and not use_tqdm
            texts = [str(conversation) for conversation in messages]
            if any("too long" in text for text in texts):
                raise VLLMValidationError("The prompt is longer than the model length of 8")
            if any("crash" in text for text in texts):
                os._exit(3)
            if any("sleep" in text for text in texts):
                time.sleep(0.5)
            further = chat_template_kwargs, mm_processor_kwargs
            return [self.reply(*pair, *further) for pair in zip(texts, sampling_params)]

        def reply(self, text, parameters, template, images):
            shown = {"settings": self.settings, "parameters": vars(parameters), "calls": self.calls,
                     "images": text.count("data:image/png"), "template": template,
                     "processor": images,
                     "rank": os.environ.get("RANK")}
            with open(os.environ["SHOWN"], "w") as file:
                json.dump(shown, file, default=vars)
            score = 2 + (parameters.seed or 0)
            words = json.dumps({"reason": "", "score": score})
            ended = "length" if "lengthy" in text else "stop"
            written = SimpleNamespace(text=words[: 9 if ended == "length" else 99],
                                      finish_reason=ended)
            return SimpleNamespace(outputs=[written])
'''
EXCEPTIONS = """
    class VLLMClientError(Exception):
        pass


    class VLLMValidationError(VLLMClientError):
        pass
"""
SAMPLING = """
    from dataclasses import dataclass


    @dataclass
    class StructuredOutputsParams:
        json: str | dict | None = None


    @dataclass
    class SamplingParams:
        temperature: float = 1.0
        top_p: float = 1.0
        top_k: int = 0
        max_tokens: int | None = 16
        seed: int | None = None
        structured_outputs: StructuredOutputsParams | None = None
"""


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the module writes what it was called with; it is found before vLLM."""
    package = tmp_path / "modules" / "vllm"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(textwrap.dedent(MODULE))
    (package / "exceptions.py").write_text(textwrap.dedent(EXCEPTIONS))
    (package / "sampling_params.py").write_text(textwrap.dedent(SAMPLING))
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setenv("SHOWN", str(tmp_path / "shown.json"))
    importlib.invalidate_caches()
    return tmp_path / "shown.json"


@pytest.fixture
def judges() -> Iterator[list[Any]]:
    """Whose engines end with the test."""
    started: list[Any] = []
    yield started
    for reward in started:
        reward._backend.close()


def judge(judges: list[Any], **options: Any) -> Any:
    entry = {"name": "judge", "backend": "vllm", "model": "Qwen/Qwen3-VL", "device": "cpu"}
    judges.append(build_reward({**entry, **options}))
    return judges[-1]


def test_requests_and_settings_reach_the_engine_as_vllm_takes_them(
    shown: Path, judges: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    extra = {"chat_template_kwargs": {"enable_thinking": False}, "top_k": 20}
    extra |= {"mm_processor_kwargs": {"max_pixels": 784}}
    reward = judge(
        judges,
        max_model_len=4096,
        gpu_memory_utilization=0.5,
        engine={"enforce_eager": True},
        extra_body=extra,
        temperature=0.6,
        top_p=0.9,
        num_votes=2,
        max_tokens=99,
    )
    image = Image.new("RGB", (8, 8))
    assert reward([Sample("a", image), Sample("b", "text")]) == [2.5, 2.5]
    found = json.loads(shown.read_text())
    assert found["settings"] == {
        "model": "Qwen/Qwen3-VL",
        "tensor_parallel_size": 1,
        "gpu_memory_utilization": 0.5,
        "dtype": "bfloat16",
        "max_model_len": 4096,
        "enforce_eager": True,
    }
    schema = found["parameters"].pop("structured_outputs")["json"]
    assert schema["properties"]["score"]["enum"] == [1, 2, 3, 4, 5]
    assert found["parameters"] == {
        "temperature": 0.6,
        "top_p": 0.9,
        "top_k": 20,
        "max_tokens": 99,
        "seed": 1,
    }
    assert found["processor"] == {"max_pixels": 784}
    assert found["template"] == {"enable_thinking": False} and found["rank"] is None
    assert found["calls"] == 1, "a batch is one call"
    assert reward.ready() == ""


def test_faults_of_the_engine_are_failures_of_their_requests(
    shown: Path, judges: list[Any]
) -> None:
    reward = judge(judges)
    with pytest.raises(
        PartialFailure, match="1 of 3.*vLLM: VLLMValidationError: The prompt is longer"
    ) as e:
        reward([Sample("q", said) for said in ("a", "too long", "b")])
    assert e.value.results[::2] == [2.0, 2.0]
    with pytest.raises(PartialFailure, match="ended at judge.max_tokens=512 before its score"):
        reward([Sample("q", "lengthy")])
    with pytest.raises(PartialFailure, match="the vLLM engine ended with status 3"):
        reward([Sample("q", "crash")])
    assert "has ended" in reward.ready()
    assert reward([Sample("q", "again")]) == [2.0], "the engine is started again"
    late = judge(judges, deadline_s=0.2)
    with pytest.raises(PartialFailure, match="the deadline passed before vLLM answered"):
        late([Sample("q", "sleep")])
    late.deadline_s = 60.0
    assert late([Sample("q", "awake")]) == [2.0], "an answer that came too late is dropped"


def test_what_cannot_start_is_refused_before_the_run(
    shown: Path, judges: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="engine of judge.model 'none' did not start"):
        judge(judges, model="none")
    with pytest.raises(
        ConfigError, match=r"judge.extra_body is .*'top_kk'.*mm_processor_kwargs and"
    ):
        judge(judges, extra_body={"top_kk": 20})
    with monkeypatch.context() as bare, pytest.raises(ConfigError, match="device is 'auto'.*cpu"):
        bare.setattr("torch.cuda.device_count", lambda: 0)
        judge(judges, device="auto")
    with pytest.raises(ConfigError, match=r"judge.engine is \['dtype'\]; it must be of other"):
        judge(judges, engine={"dtype": "auto"})
    with pytest.raises(ConfigError, match="judge.gpu_memory_utilization is 0.0"):
        judge(judges, gpu_memory_utilization=0.0)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    with pytest.raises(ConfigError, match="several processes of a node train. Each would start"):
        judge(judges)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"vllm is not installed.*mmrl\[vllm\].*judge.backend"):
        judge(judges)


@pytest.mark.parametrize(
    ("device", "count", "visible", "expected"),
    [
        ("auto", 1, None, "3"),
        ("auto", 2, "4,5,6,7", "6,7"),
        ("cuda:1", 1, None, "1"),
        ("cuda:0,2", 2, "4,5,6,7", "4,6"),
    ],
)
def test_an_engine_sees_its_own_devices_alone(
    device: str, count: int, visible: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setenv("MASTER_PORT", "29500")
    found = build_environment(device, count)
    assert found["CUDA_VISIBLE_DEVICES"] == expected and "MASTER_PORT" not in found
    assert os.environ["MASTER_PORT"] == "29500"
    for wrong in ("cuda:4", "cuda", "cuda:x", "tpu:1", "cuda:1,2,3"):
        with pytest.raises(ConfigError, match=f"judge.device is '{wrong}'"):
            build_environment(wrong, count)


def test_the_calls_fit_the_signatures_of_an_installed_vllm() -> None:
    vllm = pytest.importorskip("vllm")
    inspect.signature(vllm.LLM.chat).bind(
        None,
        [],
        sampling_params=[],
        use_tqdm=False,
        chat_template_kwargs=None,
        mm_processor_kwargs=None,
    )
    inspect.signature(vllm.LLM.__init__).bind(
        None, model="m", dtype="auto", tensor_parallel_size=1, gpu_memory_utilization=0.9
    )
    from vllm.sampling_params import StructuredOutputsParams

    schema = StructuredOutputsParams(json={"type": "object"})
    vllm.SamplingParams(temperature=0, top_p=0.9, max_tokens=9, seed=1, structured_outputs=schema)
