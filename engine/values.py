"""What tools bring, as text for a model."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, is_dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

from ..fsm.canonical import clean


def told(error: BaseException) -> str:
    """An exception in words, even one that cannot say what it is."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - its __str__ is anybody's code
        return type(error).__name__


def told_value(value: Any) -> str:
    """A tool's value as text; of one that has none the model hears that the tool did run."""
    try:
        return as_text(value)
    except Exception as error:  # noqa: BLE001 - a value's methods are anybody's code
        return f"(The tool ran. Its result, a {type(value).__name__}, cannot be shown: {told(error)})"


def as_text(value: Any) -> str:
    """A tool's value as text for a model: a text as it is, else JSON.

    NaN and infinities become their names as texts, bytes become base64, half characters become U+FFFD.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return to_json(_plain(value), inf_nan_mode="strings", bytes_mode="base64", fallback=str).decode()


def _plain(value: Any) -> Any:
    """The value with clean texts: the serializer refuses half characters wherever they stand."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, BaseModel):
        value = value.model_dump()
    elif is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Iterator | AsyncIterator):
        raise TypeError("a generator is no value, and may have no end: return a list")
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return value
