"""The page: its tabs, and the server on this machine's loopback address.

Nothing is loaded from elsewhere, by the server or by the browser, and a request under another host
name is refused: a page of another site cannot reach this one by renaming its address.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmrl.config import ConfigError, import_extra
from mmrl.config.command import write_out
from mmrl.demo import trace_view
from mmrl.demo.checkpoints import Checkpoints, able_to, find_checkpoints, find_runs
from mmrl.demo.compare_tab import build_compare_tab
from mmrl.demo.demo_config import DemoConfig
from mmrl.demo.sampling_tab import TABS, build_sampling_tab

HOST = "127.0.0.1"
LARGEST_UPLOAD = "16mb"
STYLE = """
footer {display: none !important}
.gradio-container main {width: 100%; max-width: 72rem !important; margin: 0 auto !important}
#image img {width: 100%; height: 100%; object-fit: contain}
#completions img {max-width: none; max-height: none}
"""


def serve(config: DemoConfig) -> None:
    """Serve the page until Ctrl-C. Raises ConfigError: Gradio is not installed, there is no
    checkpoint or none that loads, or the port is taken."""
    address, _ = start(config)
    write_out(f"{address} (Ctrl-C stops)\n")
    while True:
        time.sleep(3600)


def start(config: DemoConfig) -> tuple[str, Any]:
    """Start the server in a thread; return its address and the page, whose `close` ends it. Raises
    ConfigError: see `serve`."""
    os.environ |= {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_DISABLE_TELEMETRY": "1"}
    gr = import_extra("gradio", "demo")
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    own_hosts = Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])
    checkpoints = Checkpoints(find_checkpoints(config), config.device, config.loaded)
    page = build_page(checkpoints, find_runs(config.runs))
    checkpoints.load(next(iter(checkpoints.models)))  # so that the first click does not wait
    try:
        _, address, _ = page.launch(
            server_name=HOST,
            server_port=config.port or None,
            prevent_thread_lock=True,
            share=False,
            quiet=True,
            ssr_mode=False,
            enable_monitoring=False,
            max_file_size=LARGEST_UPLOAD,
            footer_links=[],
            app_kwargs={"middleware": [own_hosts]},
            theme=gr.themes.Base(font=["system-ui", "sans-serif"], font_mono=["monospace"]),
            css=trace_view.STYLE + STYLE,
        )
    except OSError as error:
        raise ConfigError(f"port is {config.port}, which is taken; take another, or 0.") from error
    return address, page


def build_page(checkpoints: Checkpoints, runs: Mapping[str, Path]) -> Any:
    """The page with a tab of each task that a checkpoint has, and one of runs."""
    gr = import_extra("gradio", "demo")
    settings = {"title": "mmrl", "analytics_enabled": False, "delete_cache": (3600, 3600)}
    with gr.Blocks(**settings, fill_width=True) as page:
        for tab in TABS:
            if able := able_to(tab.task, checkpoints.models):
                with gr.Tab(tab.name):
                    build_sampling_tab(tab, checkpoints, able)
        with gr.Tab("compare"):
            build_compare_tab(runs)
    return page
