"""The client side of reward servers: requests, retries, and the protocols they speak."""

import os
import re

from mmrl.config import check


def read_token(variable: str, key: str) -> str:
    """The bearer token in an environment variable; empty where none is named. Raises ConfigError:
    the variable is not set, or holds what no header can carry."""
    token = os.environ.get(variable, "").strip() if variable else ""
    is_token = re.fullmatch(r"[!-~]+", token) is not None
    allowed = "the name of an environment variable that holds a token, without spaces, in ASCII"
    advice = "Export it before the start; `openssl rand -hex 32` makes a new one."
    check(is_token or not variable, key, variable, allowed, advice)
    return token
