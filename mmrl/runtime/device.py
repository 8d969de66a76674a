"""The device of a single-process program, by its torch name or `auto`."""

import torch

from mmrl.config import ConfigError


def find_device(name: str) -> torch.device:
    """Find a device by name; `auto` is the GPU if there is one.

    Raises:
        ConfigError: there is no such device, or not on this machine.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise ConfigError(
            f"device is {name!r}, which this machine does not offer ({reason})."
            " Set it to auto, cpu or cuda."
        ) from error
    return device
