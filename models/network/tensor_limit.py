"""A limit on the tensors of a network that a configuration describes, checked while it is built."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from threading import get_ident
from typing import Any

from torch.nn.modules.module import register_module_parameter_registration_hook

LARGEST = 100_000
"""Tensors of a network where it is not known how many its files hold; the largest known networks
have a fifth of that."""


@contextmanager
def limit_tensors(config: Mapping[str, Any], stored: int | None = None) -> Iterator[None]:
    """Refuse a network that is built within when it grows beyond what its files can hold.

    A million layers on the meta device would take the memory of the machine before their names
    could be compared with those of the files. Somewhat too many are let through, for that
    comparison names them.

    Args:
        config: that it is built from.
        stored: tensors in its files, where known.

    Raises:
        ValueError: too many tensors, or values that no network can be built from.
    """
    thread, number = get_ident(), count(1)
    most = LARGEST if stored is None else 2 * stored + 100

    def refuse(*_: Any) -> None:
        if get_ident() == thread and next(number) > most:
            sizes = [f"{k} is {v}" for k, v in config.items() if "layers" in k or "blocks" in k]
            held = "" if stored is None else f", and its files hold {stored}"
            raise ValueError(
                f"the network of config.json has more than {most} tensors{held}: {', '.join(sizes)}"
            )

    hook = register_module_parameter_registration_hook(refuse)
    try:
        yield
    except (TypeError, ArithmeticError, LookupError, AttributeError, RuntimeError) as error:
        kind = type(error).__name__
        raise ValueError(f"no network can be built from its values ({kind}: {error})") from error
    finally:
        hook.remove()
