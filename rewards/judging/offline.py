"""A judge beside the run: `LLM.chat` of vLLM's offline engine, in another process and on devices
that the policy does not use.

The process gets the requests that a server would get, all of a batch at once. It sees neither the
policy's device nor the variables of a distributed launch. Where several processes train on a node,
each would start an engine: serve the judge there (`vllm serve`, backend openai).
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmrl.config import ConfigError, check
from mmrl.rewards.http import stop
from mmrl.rewards.http.service import Deadline
from mmrl.rewards.judging.reply import CutReply

WORKER = Path(__file__).with_name("vllm_worker.py")
LAUNCH = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables of a distributed launch, which the engine would take for its own."""


class OfflineJudge:
    """Asks an engine in another process.

    Args:
        settings: keyword arguments of `vllm.LLM`.
        device: `cuda:1`, `cuda:2,3` for several, `cpu`, or `auto`, which takes the last ones.
        extra_body: further fields of all requests.

    Raises:
        ConfigError: vllm is missing, a device or a field does not exist, several processes train on
            this node, or the engine does not start.
    """

    def __init__(
        self, settings: Mapping[str, Any], device: str, extra_body: Mapping[str, Any]
    ) -> None:
        if importlib.util.find_spec("vllm") is None:
            raise ConfigError(
                "The package vllm is not installed. It comes with the extra vllm: pip install"
                " 'mmrl[vllm]', or in a clone pip install -e '.[vllm]'. Or install it elsewhere,"
                " run vllm serve there, and set judge.backend to openai."
            )
        check(
            int(os.environ.get("LOCAL_WORLD_SIZE", 1)) == 1,
            "judge.backend",
            "vllm",
            "openai or transformers where several processes of a node train",
            "Each would start an engine: run vllm serve once, and name its address in judge.urls.",
        )
        self.settings = {"engine": dict(settings), "extra_body": dict(extra_body)}
        self.environment = build_environment(device, settings.get("tensor_parallel_size", 1))
        self._ids = itertools.count()
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()
        self._running()

    def ask(self, requests: Sequence[dict[str, Any]], deadline: Deadline) -> list[str | Exception]:
        """The replies in order; an exception where the engine refused a request, ended, or was
        not done before the deadline."""
        try:
            process, number = self._running(), next(self._ids)
            _send(process, {"id": number, "requests": list(requests)})
            found = self._read(process, number, deadline)
        except (RuntimeError, TimeoutError, ConfigError, OSError) as error:
            return [error] * len(requests)
        return [_words(reply) for reply in found["replies"]]

    def ready(self, model: str) -> str:
        """Empty while the engine runs; otherwise it is started with the next batch."""
        running = self._process is not None and self._process.poll() is None
        return "" if running else f"the vLLM engine of {model} has ended"

    def close(self) -> None:
        """End the process, and those that vLLM has started."""
        if self._process is not None:
            _end(self._process)
            self._process = None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        process = subprocess.Popen(
            [sys.executable, str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=self.environment,
            start_new_session=True,
        )
        self._process, self._lines = process, queue.Queue()
        atexit.register(_end, process)
        threading.Thread(target=_pump, args=(process, self._lines), daemon=True).start()
        try:
            _send(process, self.settings)
            refused = self._read(process, None, None).get("refused")
        except (RuntimeError, OSError) as error:
            model = self.settings["engine"].get("model")
            raise ConfigError(
                f"The vLLM engine of judge.model {model!r} did not start: its"
                " messages are above. Check judge.model, judge.device, judge.engine and the memory"
                " of the device."
            ) from error
        allowed = "chat_template_kwargs, mm_processor_kwargs and fields of vllm.SamplingParams"
        fields = self.settings["extra_body"]
        check(not refused, "judge.extra_body", fields, allowed, f"vLLM said: {refused}.")
        return process

    def _read(
        self, process: subprocess.Popen[str], number: int | None, deadline: Deadline | None
    ) -> dict[str, Any]:
        """The answer with a number; those of batches that nobody waits for any more are dropped."""
        while True:
            stop.check()
            try:
                line = self._lines.get(timeout=stop.TICK)
            except queue.Empty:
                if deadline is not None and not deadline.left:
                    raise TimeoutError("the deadline passed before vLLM answered") from None
                continue
            if not line:
                raise RuntimeError(f"the vLLM engine ended with status {process.wait()}")
            answer = json.loads(line)
            if answer["id"] == number:
                return answer


def build_environment(device: str, count: int) -> dict[str, str]:
    """The environment of an engine that sees its own devices alone.

    Args:
        device: see `OfflineJudge`.
        count: devices it needs.

    Raises:
        ConfigError: a device that does not exist, or another number of them.
    """
    kept = {key: value for key, value in os.environ.items() if key not in LAUNCH}
    if device == "cpu":
        return kept
    import torch

    total = torch.cuda.device_count()
    visible = (kept.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(total)))).split(",")
    places = list(range(total))[-count:]
    if device != "auto":
        kind, _, numbers = device.partition(":")
        named = numbers.split(",") if kind == "cuda" else []
        places = [int(number) for number in named if number.isdecimal()]
        allowed = "auto, cpu, or cuda:1, with several cuda:2,3 (backend: vllm)"
        check(bool(named) and len(places) == len(named), "judge.device", device, allowed)
    allowed = "cpu here, where no CUDA device is"
    check(total > 0, "judge.device", device, allowed, "On a CPU set judge.dtype to float32, too.")
    holds = len(places) == count and all(place < total for place in places)
    allowed = f"{count} of the {total} CUDA devices here (judge.tensor_parallel_size)"
    check(holds, "judge.device", device, allowed)
    return {**kept, "CUDA_VISIBLE_DEVICES": ",".join(visible[place] for place in places)}


def _words(reply: Mapping[str, Any]) -> str | Exception:
    if "error" in reply:
        return RuntimeError(f"vLLM: {reply['error'][:300]}")
    return CutReply(reply["text"]) if reply["cut"] else reply["text"]


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _send(process: subprocess.Popen[str], content: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    print(json.dumps(content), file=process.stdin, flush=True)


def _pump(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    """Hand the lines of a process over, and an empty one at its end."""
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put("")
