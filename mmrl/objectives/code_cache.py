"""Codes of images by the hash of their files, in memory or in a folder that processes share.

A folder holds safetensors of `keys` [n, 32] uint8 and `codes` [n, N] int32. Files are written aside
and renamed, and never change, so a reader sees a whole file or none.
"""

import hashlib
import logging
import os
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

logger = logging.getLogger(__name__)
MOST_PENDING = 512
"""Codes in memory that are not written yet."""


class CodeCache:
    """Codes of images of one tokenizer, size and fit.

    Args:
        folder: of the files, made where it is missing; None keeps all codes in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.memory: dict[bytes, Tensor] = {}
        self.places: dict[bytes, tuple[str, int]] = {}
        self.files: set[str] = set()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._find_files()

    def __len__(self) -> int:
        return len(self.memory) + len(self.places)

    def get(self, keys: Iterable[bytes]) -> dict[bytes, Tensor]:
        """Those of the codes [N] int64 that are known."""
        keys = list(dict.fromkeys(keys))
        if any(key not in self.memory and key not in self.places for key in keys):
            self._find_files()  # of other processes
        found = {key: self.memory[key].long() for key in keys if key in self.memory}
        wanted: dict[str, list[tuple[bytes, int]]] = {}
        for key in keys:
            if key in self.places and key not in found:
                name, row = self.places[key]
                wanted.setdefault(name, []).append((key, row))
        for name, rows in wanted.items():
            found |= self._read(name, rows)
        return found

    def put(self, codes: dict[bytes, Tensor]) -> None:
        """Add codes [N]. To a folder they are written once they are an eighth of what is there, or
        `MOST_PENDING`: files stay few, and a run that ends early loses little."""
        self.memory |= {key: value.to("cpu", torch.int32) for key, value in codes.items()}
        pending = len(self.memory)
        if self.folder is not None and pending >= min(MOST_PENDING, len(self.places) // 8):
            self.flush()

    def flush(self) -> None:
        """Write what is in memory into the folder."""
        if self.folder is None or not self.memory:
            return
        joined = b"".join(self.memory)
        keys = torch.frombuffer(bytearray(joined), dtype=torch.uint8).view(len(self.memory), -1)
        name = f"{hashlib.sha256(joined).hexdigest()[:24]}.safetensors"
        aside = self.folder / f".{name}.{os.getpid()}"
        save_file({"keys": keys, "codes": torch.stack(list(self.memory.values()))}, aside)
        aside.chmod(0o644)  # safetensors makes files that only their owner can read
        aside.replace(self.folder / name)
        self.places |= {key: (name, row) for row, key in enumerate(self.memory)}
        self.files.add(name)
        self.memory.clear()

    def _find_files(self) -> None:
        if self.folder is None:
            return
        for path in self.folder.glob("*.safetensors"):
            if path.name not in self.files:
                self.files.add(path.name)
                self._read_keys(path)

    def _read_keys(self, path: Path) -> None:
        try:
            with safe_open(path, framework="pt") as file:
                keys = file.get_tensor("keys").numpy()
        except (SafetensorError, OSError) as error:
            logger.warning("%s cannot be read (%s); its images are encoded anew", path, error)
            return
        self.places |= {key.tobytes(): (path.name, row) for row, key in enumerate(keys)}

    def _read(self, name: str, rows: list[tuple[bytes, int]]) -> dict[bytes, Tensor]:
        assert self.folder is not None
        try:
            with safe_open(self.folder / name, framework="pt") as file:
                codes = file.get_slice("codes")
                return {key: codes[row].long() for key, row in rows}
        except (SafetensorError, OSError) as error:
            logger.warning("%s cannot be read (%s); its images are encoded anew", name, error)
            self.places = {key: at for key, at in self.places.items() if at[0] != name}
            return {}
