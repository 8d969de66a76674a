"""A limit on the tensors of a network that a configuration describes, checked while it is built."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from threading import get_ident
from typing import Any

from torch.nn.modules.module import register_module_parameter_registration_hook


@contextmanager
def limit_tensors(config: Mapping[str, Any], stored: int = 50_000) -> Iterator[None]:
    """Refuse a network that is built within when it has many more tensors than its files.

    A million layers on the meta device would take the memory of the machine before their names
    could be compared with those of the files, which lists some that are too many.

    `stored` is the number of tensors in its files; more than known networks have, where they are
    not read. Raises ValueError: too many tensors, or values that no network can be built from.
    """
    thread, number = get_ident(), count(1)

    def refuse(*_: Any) -> None:
        if get_ident() == thread and next(number) > 2 * stored + 100:
            sizes = [f"{k} is {v}" for k, v in config.items() if "layers" in k or "blocks" in k]
            raise ValueError(f"it has more tensors than the {stored} stored: {', '.join(sizes)}")

    hook = register_module_parameter_registration_hook(refuse)
    try:
        yield
    except (TypeError, ArithmeticError, LookupError, AttributeError, RuntimeError) as error:
        kind = type(error).__name__
        raise ValueError(f"no network can be built from its values ({kind}: {error})") from error
    finally:
        hook.remove()
