"""How a training run starts: its processes, its directory and its log."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration

from mmrl import begin
from mmrl.run.hub_upload import check_token
from mmrl.run.run_directory import RunDirectory
from mmrl.run.run_lock import lock_directory
from mmrl.run.run_log import log_run
from mmrl.run_config import RunConfig
from mmrl.runtime.activity import end_when_idle
from mmrl.runtime.computation import choose_together
from mmrl.runtime.launch import end_with_launcher, join_processes, use_device
from mmrl.runtime.launch_checks import check_launch

logger = logging.getLogger(__name__)
GRACE = 30.0
"""Seconds by which a process may be idle longer than a reward may take, and collectives may take
longer than a process may be idle: the first to end says most."""


def start_processes(config: RunConfig) -> Accelerator:
    """Join the processes that the run was launched on. Raises ConfigError: a way of launching, or
    of compiling, that cannot run."""
    begin()
    if config.deterministic:
        # cuBLAS reads this when it starts; torch warns of kernels that have no deterministic form
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False
    if config.tf32:
        torch.set_float32_matmul_precision("high")
    use_device(config.device)
    end_with_launcher()
    check_launch(config.optimizer, config.torch_compile)
    timeout = timedelta(seconds=config.ddp_timeout + 2 * GRACE)
    return join_processes(
        timeout,
        mixed_precision="no",  # mmrl.runtime.precision puts autocast around the network alone
        log_with=[*map(_tracker, config.report_to)] or None,
        project_config=ProjectConfiguration(logging_dir=f"{config.output_dir}/tensorboard"),
    )


def _tracker(name: str) -> Any:
    if name != "prometheus":
        return name
    from mmrl.training.prometheus import PrometheusTracker

    return PrometheusTracker()


@contextmanager
def open_directory(
    config: RunConfig, accelerator: Accelerator
) -> Iterator[tuple[RunDirectory, Path | None]]:
    """Keep other runs out of the run directory inside the context; yield it, and the checkpoint
    that the run continues from, None for its first step. Raises ConfigError: a directory that
    cannot be written, that another run holds or whose run would be lost, or no such checkpoint."""
    if config.push_to_hub:
        check_token("push_to_hub", True, "false")
    run = RunDirectory(config.output_dir, accelerator.is_main_process)
    end_when_idle(config.ddp_timeout + GRACE)
    with lock_directory(run.path, run.is_main):
        checkpoint = run.starting_point(config)
        accelerator.wait_for_everyone()  # before any of them writes there
        yield run, checkpoint


@contextmanager
def open_log(
    config: RunConfig,
    accelerator: Accelerator,
    run: RunDirectory,
    attn_implementation: str | None,
    dtype: str = "float32",
) -> Iterator[None]:
    """Log into the run directory inside the context."""
    with log_run(run, accelerator.process_index):
        computation = choose_together(config.bf16, accelerator, attn_implementation, dtype)
        for reason in computation.reasons:
            logger.info("%s", reason)
        run.create(config, computation.reasons)
        yield
