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
from mmrl.demo import completions_view, written
from mmrl.demo.ask_tab import build_ask_tab
from mmrl.demo.checkpoints import Checkpoints, find_checkpoints
from mmrl.demo.demo_config import DemoConfig
from mmrl.demo.draw_tab import build_draw_tab
from mmrl.demo.run_files import find_runs
from mmrl.demo.runs_tab import build_runs_tab
from mmrl.demo.write_tab import build_write_tab

HOST = "127.0.0.1"
LARGEST_UPLOAD = "16mb"
SHOWS = {
    "draw": "An image of a prompt, by one or two checkpoints, after each denoising step.",
    "write": "A text, token by token, by one or two checkpoints.",
    "ask": "A question about an image, and the answer token by token.",
    "runs": "The completions that a run recorded.",
}
"""The line at the top of each tab."""

STYLE = """
footer {display: none !important}
.gradio-container main {max-width: 72rem !important; margin: 0 auto !important}
#image img {width: 100%; height: 100%; object-fit: contain}
"""


def serve(config: DemoConfig) -> None:
    """Serve the page until Ctrl-C.

    Raises:
        ConfigError: Gradio is not installed, there is no checkpoint or none that loads, or the port
            is taken.
    """
    address, _ = start(config)
    write_out(f"{address} (Ctrl-C stops)\n")
    while True:
        time.sleep(3600)


def start(config: DemoConfig) -> tuple[str, Any]:
    """Start the server in a thread; return its address and the page, whose `close` ends it.

    Raises:
        ConfigError: see `serve`.
    """
    for name in ("GRADIO_ANALYTICS_ENABLED", "HF_HUB_DISABLE_TELEMETRY"):
        os.environ[name] = "False" if name.startswith("GRADIO") else "1"
    gr = import_extra("gradio", "demo")
    checkpoints = Checkpoints(find_checkpoints(config), config.device, config.loaded)
    page = build_page(checkpoints, find_runs(config.runs))
    checkpoints.load(next(iter(checkpoints.models)))  # so that the first click does not wait
    try:
        _, address, _ = page.launch(
            server_name=HOST,
            server_port=config.port or _free_port(),
            inbrowser=config.open_browser,
            prevent_thread_lock=True,
            share=False,
            quiet=True,
            ssr_mode=False,
            enable_monitoring=False,
            max_file_size=LARGEST_UPLOAD,
            footer_links=[],
            app_kwargs={"middleware": [_own_hosts_only()]},
            theme=gr.themes.Base(font=["system-ui", "sans-serif"], font_mono=["monospace"]),
            css=written.STYLE + completions_view.STYLE + STYLE,
        )
    except OSError as error:
        raise ConfigError(f"port is {config.port}, which is taken; take another, or 0.") from error
    return address, page


def build_page(checkpoints: Checkpoints, runs: Mapping[str, Path]) -> Any:
    """The page with all its tabs."""
    gr = import_extra("gradio", "demo")
    tabs = {
        "draw": lambda: build_draw_tab(checkpoints),
        "write": lambda: build_write_tab(checkpoints),
        "ask": lambda: build_ask_tab(checkpoints),
        "runs": lambda: build_runs_tab(runs),
    }
    settings = {"title": "mmrl", "analytics_enabled": False, "delete_cache": (3600, 3600)}
    with gr.Blocks(**settings, fill_width=True) as page:
        for name, build in tabs.items():
            with gr.Tab(name):
                gr.Markdown(SHOWS[name])
                build()
    return page


def _own_hosts_only() -> Any:
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    return Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]
