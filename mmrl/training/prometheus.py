"""The metrics of a run as Prometheus scrapes them, `report_to: [prometheus]`.

They are gauges named `mmrl_…`, letters and digits kept and all else an underscore, such as
`mmrl_perf_tokens_per_s`, `mmrl_sampling_queue`, `mmrl_sampling_staleness`, `mmrl_time_update_s`.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

from accelerate.tracking import GeneralTracker, on_main_process

from mmrl.config import check

PORT = "MMRL_PROMETHEUS_PORT"


class PrometheusTracker(GeneralTracker):
    """Answers at http://127.0.0.1:9400/metrics, or at the port in MMRL_PROMETHEUS_PORT."""

    name = "prometheus"
    requires_logging_directory = False

    def __init__(self) -> None:
        super().__init__()
        self.gauges: dict[str, Any] = {}

    @property
    def tracker(self) -> Any:
        """The metrics."""
        return self.gauges

    @on_main_process
    def start(self) -> None:
        """Listen. Raises ConfigError: the port is no number. Raises OSError: it is taken."""
        from prometheus_client import CollectorRegistry, start_http_server

        given, self.registry = os.environ.get(PORT, "9400"), CollectorRegistry()
        check(given.isdecimal() and int(given) < 65536, PORT, given, "a port")
        start_http_server(int(given), "127.0.0.1", self.registry)

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Settings are in config.yaml."""

    @on_main_process
    def log(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        """Show numbers, and the step as `mmrl_step`."""
        from prometheus_client import Gauge

        for key, value in {**values, "step": step}.items():
            if not isinstance(value, int | float):
                continue
            name = "mmrl_" + re.sub(r"\W", "_", key)
            if name not in self.gauges:
                self.gauges[name] = Gauge(name, key, registry=self.registry)
            self.gauges[name].set(value)
