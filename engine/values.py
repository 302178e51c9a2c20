"""What tools bring, as text for a model. Event loops do this between two sessions, so all of it has bounds."""

from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

from ..fsm.canonical import DEEPEST_WRITTEN, clean

VALUES = 100_000  # in one result: a tenth of a second
CHARACTERS = 8 * 2**20
BITS = 100_000  # of an integer: to write it takes the square of its length
_LEAVES = frozenset({int, float, bool, type(None)})
_LISTS = (list, tuple, set, frozenset, deque)


def told(error: BaseException) -> str:
    """An exception in words, even one that cannot say what it is."""
    try:
        return f"{type(error).__name__}: {error}"[:CHARACTERS]
    except BaseException:  # noqa: BLE001 - its __str__ is anybody's code
        return type(error).__name__


def told_value(value: Any) -> str:
    """A tool's value as text; of one that has none the model hears that the tool did run."""
    try:
        text = as_text(value)
    except Exception as error:  # noqa: BLE001 - a value's methods are anybody's code
        return f"(The tool ran. Its result, a {type(value).__name__}, cannot be shown: {told(error)})"
    if len(text) <= CHARACTERS:
        return text
    return f"[The tool returned {len(text)} characters. Only the first {CHARACTERS} are kept.]\n{text[:CHARACTERS]}"


def as_text(value: Any) -> str:
    """A tool's value as text for a model: a text as it is, else JSON.

    NaN and infinities become their names as texts, bytes become base64, half characters become U+FFFD.

    Raises:
        ValueError: it is too much. TypeError: it is a generator, or holds one.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return to_json(_Plain().of(value), inf_nan_mode="strings", bytes_mode="base64", fallback=str).decode()


class _Plain:
    """A value with clean texts: the serializer refuses half characters wherever they stand. It counts what it sees."""

    __slots__ = ("characters", "values")

    def __init__(self) -> None:
        self.values, self.characters = VALUES, CHARACTERS

    def of(self, value: Any, room: int = DEEPEST_WRITTEN) -> Any:
        self.values -= 1
        if room < 0:
            raise ValueError(f"it is nested more than {DEEPEST_WRITTEN} levels deep: make it flatter")
        if self.values < 0:
            raise ValueError(f"it holds more than {VALUES} values: return less, or attach it as a file")
        kind = type(value)
        if kind in _LEAVES:
            if kind is int and value.bit_length() > BITS:
                raise ValueError(f"it holds an integer of {value.bit_length()} bits: return it as a text")
            return value
        if isinstance(value, str):
            self._count(len(value))
            return clean(value)
        if isinstance(value, bytes | bytearray):
            self._count(len(value))
            return value
        if isinstance(value, BaseModel):
            value = value.model_dump()
        elif is_dataclass(value) and not isinstance(value, type):
            value = {one.name: getattr(value, one.name) for one in fields(value)}
        if isinstance(value, dict):
            return {self.of(key, room - 1): self.of(item, room - 1) for key, item in value.items()}
        if isinstance(value, _LISTS):
            return [self.of(item, room - 1) for item in value]
        if isinstance(value, Iterator | AsyncIterator):
            raise TypeError("a generator is no value, and may have no end: return a list")
        return value

    def _count(self, characters: int) -> None:
        self.characters -= characters
        if self.characters < 0:
            raise ValueError(f"it holds more than {CHARACTERS} characters: return less, or attach it as a file")
