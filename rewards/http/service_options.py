"""Options of rewards that ask a service."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from mmrl.config import ConfigError, above, check
from mmrl.rewards.http.service import Service


@dataclass(kw_only=True, eq=False)
class ServiceOptions:
    """Limits of the requests of a reward."""

    deadline_s: Annotated[float, above(0)] = 300.0
    """Seconds for all requests of one batch, including retries."""
    timeout_s: float = 120.0
    """Seconds for one try."""
    retries: int = 8
    """Further tries of a request at each address; waiting for a server that is not there, or is
    busy, does not count."""
    concurrency: int = 8
    """Simultaneous requests of each process."""

    def open_service(self, urls: Sequence[str], variable: str, keys: tuple[str, str]) -> Service:
        """Open a service that is waited for while it is busy.

        Args:
            urls: its addresses.
            variable: environment variable with its token; empty for none.
            keys: configuration keys of both, for messages.

        Raises:
            ConfigError: the variable is not set, or an address or a limit is not valid.
        """
        secret = os.environ.get(variable, "") if variable else ""
        allowed = "the name of an environment variable that is set"
        check(bool(secret) or not variable, keys[1], variable, allowed, "Export it before the run.")
        tries = self.retries * len(urls)
        try:
            return Service(urls, secret, self.concurrency, self.timeout_s, tries, patient=True)
        except ValueError as error:
            raise ConfigError(f"{keys[0]}: {error}") from error
