"""From bytes off the wire to a frame, or to an error that names what was wrong."""

import json
import re
from typing import Any, NoReturn

from pydantic import ValidationError

from ..fsm.canonical import DEEPEST_WRITTEN, check_depth
from .frames import ClientCommand, ClientFrame, Hello

_ID = re.compile(r'"id"\s*:\s*"([^"\\]{1,128})"')
_HEAD = 4096  # characters in which the id of a frame that cannot be read is looked for
_SHOWN = 3  # how many problems of one frame are told


class BadFrame(Exception):
    """A frame that is no command. `code` is for programs, `id` the client's id if one could be found."""

    def __init__(self, code: str, message: str, id: str | None = None) -> None:  # noqa: A002 - the field's name
        super().__init__(message)
        self.code, self.message, self.id = code, message, id


def parse(message: str | bytes) -> Hello | ClientCommand:
    """Read one message.

    Raises:
        BadFrame: it is binary, no JSON object, or no frame of the protocol. Nothing is repaired.
    """
    if isinstance(message, bytes):
        raise BadFrame("invalid_frame", "this is a binary message: send JSON as text")
    value = _load(message)
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise BadFrame("invalid_frame", f"a JSON object is needed, this is a {kind}: see the schema of the protocol")
    given = value.get("id")
    mark = given if isinstance(given, str) and 0 < len(given) <= 128 else None
    try:
        return ClientFrame.validate_python(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        unknown = found[0]["type"] in ("union_tag_invalid", "union_tag_not_found")
        told = "; ".join(_told(one) for one in found[:_SHOWN])
        more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise BadFrame("unknown_type" if unknown else "invalid_frame", told + more, mark) from None


def find_id(message: str | bytes) -> str | None:
    """The id of a message that is not read in full."""
    found = _ID.search(message[:_HEAD]) if isinstance(message, str) else None
    return found[1] if found else None


def _told(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"]) or "frame"
    return f"{where}: {error['msg']}"


def _load(text: str) -> Any:
    try:
        check_depth(text, DEEPEST_WRITTEN)  # a frame wraps values that have bounds of their own
    except ValueError:
        raise BadFrame("invalid_frame", "the JSON is nested too deeply: send it flatter", find_id(text)) from None
    try:
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant, parse_float=_finite)
    except ValueError as error:
        raise BadFrame("invalid_frame", f"this is no JSON ({error}); nothing was repaired", find_id(text)) from None
    if "\\ud" in text or "\\uD" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise BadFrame(
                "invalid_frame", "a text holds half a surrogate pair: that is no character", find_id(text)
            ) from None
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:40]!r} comes twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"the number {text[:40]} is too large")
    return number
