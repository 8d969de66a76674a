"""Requests that no honest client sends, and what a server must make of them."""

from __future__ import annotations

import base64
import copy
import io
import json
import struct
import zlib
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple

from PIL import Image, PngImagePlugin

TOKEN = "token-of-the-fuzzed-server"
LIMITS = {
    "max_items": 16,
    "max_bytes": 300_000,
    "max_pixels": 65_536,
    "max_memory_mb": 24,
    "max_waiting": 64,
    "body_seconds": 1,
}
PATHS = (
    "/etc/passwd",
    "../../../../etc/passwd",
    "file:///etc/passwd",
    "http://127.0.0.1:9/x.png",
    "\\\\host\\share",
    "/proc/self/environ",
    "|id",
    "$(id)",
    "{CANARY}",
    "data:image/png;base64,AA",
)


class Fuzzed(NamedTuple):
    """One exchange: its kind, the bytes to send, and the ids an answer must repeat."""

    kind: str
    raw: bytes
    ids: list[str]
    may_stay_silent: bool = False


def problem(sent: Fuzzed, answer: tuple[int, bytes] | None) -> str | None:
    """What is wrong with an answer, or None."""
    if answer is None:
        return None if sent.may_stay_silent else f"{sent.kind}: no answer"
    status, body = answer
    if status == 400 and body == b"Invalid HTTP request received.":
        return None
    try:
        content = json.loads(body)
        if status == 200:
            found = [item["id"] for item in content["items"]]
            scores = [item["score"] for item in content["items"]]
            fine = found == sent.ids and all(s is None or -1 <= s <= 1 for s in scores)
        else:
            fine = 400 <= status < 500 and bool(content["error"]["code"])
    except (ValueError, KeyError, TypeError) as error:
        return f"{sent.kind}: {status} with {body[:200]!r} ({error!r})"
    return None if fine else f"{sent.kind}: {status} with {body[:200]!r}"


def png(image: Image.Image, **options: Any) -> bytes:
    """The file of an image."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", **options)
    return buffer.getvalue()


def _base(random: Random) -> dict[str, Any]:
    """A right request with one to three items."""
    items = [_item(f"i{n}", _picture(random)) for n in range(random.randint(1, 3))]
    reward = random.choice(("clip", "shapes"))
    return {"id": f"{random.getrandbits(64):x}", "reward": reward, "items": items}


def _item(name: str, data: bytes) -> dict[str, Any]:
    picture = {"mime": "image/png", "data": base64.b64encode(data).decode()}
    metadata = {"tag": "single_object", "include": [{"class": "circle", "count": 1}]}
    return {"id": name, "prompt": "a red circle", "images": [picture], "metadata": metadata}


def _picture(random: Random) -> bytes:
    size = (random.randint(1, 40), random.randint(1, 40))
    return png(Image.new("RGB", size, random.getrandbits(24)))


def _http(content: Any, headers: Mapping[str, str] | None = None, cut: int = 0) -> bytes:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    told = {
        "Host": "x",
        "Connection": "close",
        "Content-Type": "application/json",
        "Authorization": f"Bearer {TOKEN}",
        "Content-Length": str(len(body) + cut),
        **(headers or {}),
    }
    lines = ["POST /v1/score HTTP/1.1", *(f"{key}: {value}" for key, value in told.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body


def _ids(content: Any) -> list[str]:
    items = content.get("items") if isinstance(content, dict) else None
    found = items if isinstance(items, list) else []
    return [item.get("id") for item in found if isinstance(item, dict)]


def _junk(random: Random, canary: str) -> Any:
    path = random.choice(PATHS).replace("{CANARY}", canary)
    return random.choice(
        [None, True, -1, 10**400, 0.5, "", "\0", "\ud800", [], {}, [[]] * 50, {"a": {}}, path]
    )


def _places(node: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything in a structure."""
    if not isinstance(node, dict | list):
        return []
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    return [place for key in keys for place in ((node, key), *_places(node[key]))]


def _changed(random: Random, kind: str, canary: str) -> Fuzzed:
    content = _base(random)
    for _ in range(random.randint(1, 3)):
        container, key = random.choice(_places(content) or [(content, "x")])
        if random.random() < 0.3 and isinstance(container, dict):
            container.pop(key, None)
        else:
            container[key] = copy.deepcopy(_junk(random, canary))
    return Fuzzed(kind, _http(content), _ids(content))


def _paths(random: Random, kind: str, canary: str) -> Fuzzed:
    content = _base(random)
    path = random.choice(PATHS).replace("{CANARY}", canary)
    item = content["items"][0]
    match random.randrange(5):
        case 0:
            item["images"][0]["data"] = random.choice(
                [path, base64.b64encode(path.encode()).decode()]
            )
        case 1:
            content["reward"] = path
        case 2:
            item["id"] = item["prompt"] = path
        case 3:
            item["metadata"] |= {"path": path, "image": path, path: path}
        case 4:
            del item["images"]
            item["completion"] = path
    return Fuzzed(kind, _http(content), _ids(content))


def _damaged(random: Random, kind: str, canary: str) -> Fuzzed:
    content, data = _base(random), bytearray(_picture(random))
    if random.random() < 0.5:
        del data[random.randrange(len(data)) :]
    else:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    content["items"].append(_item("damaged", bytes(data)))
    return Fuzzed(kind, _http(content), _ids(content))


def _bomb(random: Random, kind: str, canary: str) -> Fuzzed:
    content = _base(random)
    many = [_item(f"b{n}", _bomb_file(random)) for n in range(random.randint(1, 3))]
    content["items"] += many
    return Fuzzed(kind, _http(content), _ids(content))


def _bomb_file(random: Random) -> bytes:
    side = 2 ** random.randint(8, 11)
    match random.randrange(4):
        case 0:
            return png(Image.new("1", (side, side)))
        case 1:
            texts = PngImagePlugin.PngInfo()
            for n in range(8):
                texts.add_text(f"t{n}", " " * 500_000, zip=True)
            return png(Image.new("L", (4, 4)), pnginfo=texts, icc_profile=bytes(500_000))
        case 2:
            blank = Image.new("L", (64, 64))
            return png(blank, save_all=True, append_images=[Image.new("L", (64, 64), 1), blank])
    header = b"IHDR" + struct.pack(">IIBBBBB", random.getrandbits(31), side, 8, 6, 0, 0, 0)
    start = png(Image.new("RGBA", (1, 1)))
    return start[:12] + header + struct.pack(">I", zlib.crc32(header)) + start[33:]


def _counts(random: Random, kind: str, canary: str) -> Fuzzed:
    content, number = _base(random), 10 ** random.randint(2, 5)
    match random.randrange(4):
        case 0:
            content["items"] = [{}] * number
        case 1:
            content["items"][0]["images"] *= 100
        case 2:
            content["items"][0]["metadata"] = {"a": [0] * number}
        case 3:
            content["items"] = [[[[]]]] * (number // 4)
    return Fuzzed(kind, _http(content), _ids(content))


def _numbers(random: Random, kind: str, canary: str) -> Fuzzed:
    content = _base(random)
    content["items"][0]["metadata"]["x"] = "<number>"
    digits = random.choice(["NaN", "Infinity", "-Infinity", "1e999", "9" * 6000, "1" * 400, "-0"])
    body = json.dumps(content).replace('"<number>"', digits).encode()
    return Fuzzed(kind, _http(body), _ids(content))


def _depth(random: Random, kind: str, canary: str) -> Fuzzed:
    opening, closing = random.choice([("[", "]"), ('{"a":', "}")])
    number = 10 ** random.randint(1, 4)
    nested = opening * number + "1" + closing * number
    content = _base(random)
    content["items"][0]["metadata"] = {"x": "<nested>"}
    body = json.dumps(content).replace('"<nested>"', nested)
    return Fuzzed(kind, _http(body.encode()), _ids(content))


def _bytes(random: Random, kind: str, canary: str) -> Fuzzed:
    body = bytearray(json.dumps(_base(random)).encode())
    for _ in range(random.randint(1, 4)):
        body[random.randrange(len(body))] = random.randrange(256)
    if random.random() < 0.5:
        del body[random.randrange(len(body)) :]
    return Fuzzed(kind, _http(bytes(body)), _read_ids(bytes(body)))


def _read_ids(body: bytes) -> list[str]:
    try:
        return _ids(json.loads(body))
    except (ValueError, RecursionError):
        return []


def _token(random: Random, kind: str, canary: str) -> Fuzzed:
    given = random.choice(
        [
            "",
            "Bearer",
            "Bearer  ",
            f"Bearer {TOKEN[:-1]}",
            f"Bearer {TOKEN}x",
            f"Basic {TOKEN}",
            f"Bearer {TOKEN}, Bearer {TOKEN}",
            "Bearer " + "x" * 9000,
            "Bearer \xe9",
            canary,
        ]
    )
    raw = _http(_base(random), {"Authorization": given})
    return Fuzzed(kind, raw, ["an id that no answer has"])


def _lengths(random: Random, kind: str, canary: str) -> Fuzzed:
    content = _base(random)
    match random.randrange(4):
        case 0:
            raw = _http(content, cut=-random.randint(1, 50))
        case 1:
            huge = str(10 ** random.choice([7, 12, 18, 30]))
            raw = _http(content, {"Content-Length": huge})
        case 2:
            raw = _http(content, {"Content-Length": random.choice(["-1", "1e3", "٣", "0x10", ""])})
        case 3:
            raw = _http(b" " * 400_000)
    return Fuzzed(kind, raw, _ids(content), may_stay_silent=True)


def _chunks(random: Random, kind: str, canary: str) -> Fuzzed:
    content = _base(random)
    body = json.dumps(content).encode()
    told = {"Transfer-Encoding": "chunked", "Content-Length": ""}
    head = _http(b"", told).replace(b"Content-Length: \r\n", b"")
    size = random.choice([b"%x" % len(body), b"-1", b"zz", b"ffffffffffffffff"])
    raw = head + size + b"\r\n" + body + b"\r\n0\r\n\r\n"
    return Fuzzed(kind, raw, _ids(content), may_stay_silent=True)


def _lines(random: Random, kind: str, canary: str) -> Fuzzed:
    path = random.choice((*PATHS, "/metrics/../etc/passwd", "/v1/score/", "/%2e%2e/%00", "//", ""))
    path = path.replace("{CANARY}", canary).replace(" ", "%20")
    method = random.choice(["GET", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "X" * 100])
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    head += f"Authorization: Bearer {TOKEN}\r\n\r\n"
    return Fuzzed(kind, head.encode("latin-1", "replace"), [], may_stay_silent=method == "HEAD")


def _noise(random: Random, kind: str, canary: str) -> Fuzzed:
    raw = random.randbytes(random.randint(1, 400)) + b"\r\n\r\n"
    return Fuzzed(kind, raw, [], may_stay_silent=True)


def _right(random: Random, kind: str, canary: str) -> Fuzzed:
    content = _base(random)
    return Fuzzed(kind, _http(content), _ids(content))


KINDS: dict[str, Callable[[Random, str, str], Fuzzed]] = {
    "right": _right,
    "wrong types": _changed,
    "paths": _paths,
    "damaged pictures": _damaged,
    "bombs": _bomb,
    "huge counts": _counts,
    "numbers": _numbers,
    "depth": _depth,
    "changed bytes": _bytes,
    "wrong token": _token,
    "wrong lengths": _lengths,
    "chunks": _chunks,
    "wrong lines": _lines,
    "noise": _noise,
}
