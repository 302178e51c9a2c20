r"""One way to write a JSON value, and the digest of it.

The rule: keys sorted, no spaces, ASCII only (other characters as \u escapes, NUL too), integers as they are however
big, 1 and 1.0 differ, NaN and infinities have no form and are refused. A lone surrogate is no character: `clean`
replaces it by U+FFFD before a text enters the log.
"""

import json
import re
from hashlib import sha256
from typing import Any

_WRITE = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode
_SURROGATE = re.compile("[\ud800-\udfff]")
DEEPEST = 64  # levels of lists and objects; readers of JSON differ in how many they bear, all bear these
DEEPEST_WRITTEN = 2 * DEEPEST  # of what wraps such values: definitions of tools, results
_DEEP = "the JSON is nested more than {} levels deep: make it flatter"
_MARK = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)


def canonical(value: Any) -> str:
    """The canonical text of a JSON value.

    Raises:
        ValueError: the value holds NaN, an infinity or something that is not JSON, or is nested too deeply.
    """
    try:
        text = _WRITE(value)
    except RecursionError:  # at how many levels depends on the interpreter; it is always more than the bound
        raise ValueError(_DEEP.format(DEEPEST_WRITTEN)) from None
    except TypeError as error:
        raise ValueError(str(error)) from error
    check_depth(text, DEEPEST_WRITTEN)
    return text


def digest(value: Any) -> str:
    """`sha256` of the canonical text, as 64 hexadecimal digits."""
    return text_digest(canonical(value))


def text_digest(text: str) -> str:
    """`sha256` of a text, as 64 hexadecimal digits."""
    return sha256(text.encode()).hexdigest()


def clean(text: str) -> str:
    """The text with surrogate pairs joined and every lone surrogate replaced by U+FFFD."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def utc(ms: int) -> str:
    """A time in milliseconds since 1970 UTC as people read it, to the second: `2030-01-01 00:00:00 UTC`.

    Reckoned here, since a module that knows the calendar also knows what time it is. Takes any integer.
    """
    days, second = divmod(ms // 1000, 86_400)
    # Years that begin in March have the leap day at their end; 400 of them are 146097 days.
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    year, month = era * 400 + year + month // 10, (month + 2) % 12 + 1
    return f"{year:04}-{month:02}-{day + 1:02} {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02} UTC"


def check_depth(text: str, most: int = DEEPEST, at: int = 0) -> None:
    """Count the levels of the JSON value that begins at `at`, before a reader meets them.

    A reader's own bound is that of the interpreter's stack, another one on each release.

    Raises:
        ValueError: it is nested more than `most` levels deep.
    """
    if text.count("[", at) + text.count("{", at) <= most:
        return
    depth = 0
    for mark in _MARK.finditer(text, at):
        if mark[0] in ("[", "{"):
            depth += 1
            if depth > most:
                raise ValueError(_DEEP.format(most))
        elif mark[0] in ("]", "}"):
            depth -= 1
            if depth <= 0:
                return


def read_json(text: str | bytes, most: int = DEEPEST) -> Any:
    """The JSON value of a text from outside; bytes are UTF-8, UTF-16 or UTF-32.

    Raises:
        ValueError: it is no JSON, or nested more than `most` levels deep.
    """
    text = text if isinstance(text, str) else text.decode(json.detect_encoding(text))
    check_depth(text, most)
    return json.loads(text)


def clean_json(value: Any, room: int = DEEPEST) -> Any:
    """The same JSON value with `clean` texts and keys.

    Raises:
        ValueError: it is nested more than `room` levels deep.
    """
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict | list | tuple) and not room:
        raise ValueError(_DEEP.format(DEEPEST))
    if isinstance(value, dict):
        return {clean(key): clean_json(item, room - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(item, room - 1) for item in value]
    return value
