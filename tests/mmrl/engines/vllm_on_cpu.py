"""Runs with real vLLM on the CPU, in its own environment: `make test-engines`."""

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ |= {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else every engine takes the first core
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "OMP_NUM_THREADS": "1",
}
PORT = 18377
URL = f"http://127.0.0.1:{PORT}"
ENGINE = "{enforce_eager: true, max_model_len: 128, kv_cache_memory_bytes: 67108864}"
LORA = "model.lora={r: 4}"


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.mmrl.engines.served import write_start

    return write_start(tmp_path_factory.mktemp("qwen3"), num_hidden_layers=2)


@pytest.fixture(scope="module")
def server(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(start)]
    command += ["--port", str(PORT), "--dtype", "float32", "--enforce-eager"]
    command += ["--max-model-len", "128", "--kv-cache-memory-bytes", "67108864"]
    command += ["--logprobs-mode", "processed_logprobs"]
    command += ["--worker-extension-cls", "mmrl.engines.vllm_worker.Worker"]
    command += ["--weight-transfer-config", '{"backend": "mmrl"}']
    log = tmp_path_factory.mktemp("vllm") / "log"
    environment = {**os.environ, "VLLM_SERVER_DEV_MODE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    process = subprocess.Popen(
        command, stdout=log.open("w"), stderr=subprocess.STDOUT, env=environment
    )
    try:
        wait_for(process, log)
        yield URL
    finally:
        process.terminate()
        process.wait(60)


def wait_for(process: subprocess.Popen[bytes], log: Path, seconds: float = 480) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()[-4000:]
        try:
            urllib.request.urlopen(f"{URL}/health", timeout=5)
            return
        except OSError:
            time.sleep(1)
    raise AssertionError(log.read_text()[-4000:])


def check_run(run: Path, steps: int) -> None:
    """Greedy tokens were compared after every update, else the run had ended."""
    from tests.mmrl.runs import metrics

    lines = [line for line in metrics(run) if "loss" in line]
    assert len(lines) == steps
    assert max(line["sampling/sampling_logp_difference/max"] for line in lines) < 1e-4
    assert [line["sampling/staleness"] for line in lines] == [0] * steps
    assert len({line["reward"] for line in lines}) > 1, "the policy did not move"


def run_words(start: Path, out: Path, *more: str, **options: str) -> list[str]:
    from tests.mmrl.engines.served import words

    return [*words(start, out, *more, **options), "model.dtype=float32", "save_steps=0"]


@pytest.mark.parametrize("changes", [["max_steps=10"], [LORA]], ids=["full", "lora"])
@pytest.mark.parametrize("transfer", ["path", "group"])
def test_served(
    start: Path, tmp_path: Path, server: str, changes: list[str], transfer: str
) -> None:
    from mmrl import rl

    assert rl.main(run_words(start, tmp_path, *changes, engine=server, transfer=transfer)) == 0
    check_run(tmp_path, 10 if len(changes[0]) == 12 else 3)


@pytest.mark.parametrize("changes", [["max_steps=10"], [LORA]], ids=["full", "lora"])
def test_in_one_process(start: Path, tmp_path: Path, changes: list[str]) -> None:
    sampler = f"tasks.arithmetic.sampler={{name: vllm, engine: {ENGINE}}}"
    command = [sys.executable, "-m", "mmrl.rl", *run_words(start, tmp_path, *changes, sampler)]
    subprocess.run(command, check=True)
    check_run(tmp_path, 10 if len(changes[0]) == 12 else 3)


def test_in_each_of_two_processes(start: Path, tmp_path: Path) -> None:
    sampler = f"tasks.arithmetic.sampler={{name: vllm, engine: {ENGINE}}}"
    command = [sys.executable, "-m", "accelerate.commands.launch"]
    command += ["--config_file", "configs/accelerate/cpu2.yaml", "--main_process_port", "0"]
    command += ["-m", "mmrl.rl", *run_words(start, tmp_path, sampler)]
    subprocess.run(command, check=True)
    check_run(tmp_path, 3)
