"""Settings: typed dataclasses, YAML files and the command line; what reads and explains them."""

from mmrl.config.settings import (
    ConfigError,
    NotHereError,
    check,
    check_choice,
    component,
    installed,
    load_config,
    merge,
    plain,
    stated,
    to_yaml,
)

__all__ = [
    "ConfigError",
    "NotHereError",
    "check",
    "check_choice",
    "component",
    "installed",
    "load_config",
    "merge",
    "plain",
    "stated",
    "to_yaml",
]
