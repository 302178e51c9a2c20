r"""Text of a log on a terminal. Nothing that a model, a tool or a person wrote reaches it raw.

Whatever is not seen, or moves what is seen, is written as `\u{...}` with its code point in hexadecimal: control
characters and escape codes, direction marks, zero-width and filler characters, spaces other than the common one. A run
of many spaces, which would push a line's end out of sight, is written as `\u{20*N}`. A backslash that would make plain
text look like one of these is written as `\u{5c}`.

What comes out of a log is put into a line by `visible`, `plain`, `short` or `arguments`. Every line is printed by
`say`, which lets no hidden character through, even where one of them was forgotten.
"""

import json
import os
import re
import shutil
import sys
import time
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

import typer

# Unicode calls these letters, symbols or marks, but they are drawn as nothing or as a gap.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef\u180b-\u180d\u180f]")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
_SPACES = re.compile(" {5,}")
_CUT_ESCAPE = re.compile(r"\\(u(\{[^}]*)?)?$")
_PLAIN = re.compile(r"[ -~]*")
_PLAIN_LINES = re.compile(r"[\n -~]*")
_WORD = re.compile(r" *[^ ]+ *| +")
_DIGITS = 12
# Columns: a narrower terminal is not wrapped for, and wider lines are hard to follow. A pipe has no width.
NARROWEST, WIDEST, OF_A_PIPE = 40, 120, 100


def visible(text: str) -> str:
    """One line in which everything can be seen."""
    if _PLAIN.fullmatch(text) and "     " not in text and "\\u{" not in text:
        return text
    escaped = "".join(_one(char, text[at + 1 : at + 3]) for at, char in enumerate(text))
    return _SPACES.sub(lambda run: f"\\u{{20*{len(run[0])}}}", escaped)


def plain(text: str) -> str:
    """The same for a text of several lines: line ends stay."""
    return "\n".join(visible(line) for line in text.split("\n"))


def _one(char: str, after: str) -> str:
    if char == " ":
        return char
    hidden = unicodedata.category(char) in _HIDDEN or char in _BLANK or _SELECTORS.match(char)
    return f"\\u{{{ord(char):x}}}" if hidden or (char == "\\" and after == "u{") else char


def arguments(value: Any, limit: int = 0) -> str:
    """Arguments of a call as JSON on one line, keys in order, all to be seen; whole ones with a limit of 0."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return short(text, limit) if limit else visible(text)


def marked(digest: str) -> str:
    """The beginning of a digest, enough to compare by eye; --json has all of it."""
    return f"[{visible(digest[:_DIGITS])}]"


def moment(at: int) -> str:
    """Milliseconds since 1970 as a time of day in UTC, to the millisecond."""
    seconds, rest = divmod(at, 1000)
    try:
        return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:03}Z"
    except (ValueError, OverflowError, OSError):
        return f"{at} ms"


def short(text: str, limit: int = 200) -> str:
    """The beginning of a text on one line, `limit` characters once everything can be seen; the rest is counted."""
    told = visible(text)
    if len(told) <= limit:
        return told
    kept = _CUT_ESCAPE.sub("", told[:limit])
    return f"{kept}... [{len(told) - len(kept)} more characters]"


def counted(number: int, what: str) -> str:
    """A number of things."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def to_json(value: Any) -> str:
    """JSON of ASCII characters only, so that no terminal can be moved by it."""
    return json.dumps(value, indent=2)


def say(
    text: str = "", *, colour: str | None = None, bold: bool = False, end: str = "\n", flush: bool = False,
    file: TextIO | None = None,
) -> None:  # fmt: skip
    """Print, coloured where a person looks on. The only way to a terminal: whatever is still hidden is escaped here."""
    if not _PLAIN_LINES.fullmatch(text):
        text = "".join(char if char == "\n" else _one(char, "") for char in text)
    out = file or sys.stdout
    plain_wanted = not out.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    styled = text if plain_wanted else typer.style(text, fg=colour, bold=bold or None)
    print(styled, end=end, file=out, flush=flush or not end)


def columns() -> int:
    """How wide lines that are wrapped may be."""
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size((OF_A_PIPE, 24)).columns))


def wrapped(text: str, width: int, indent: str) -> Iterator[str]:
    """A line as several, none above `width` columns; all but the first begin with `indent`. Only spaces are lost."""
    line, used = "", 0
    for word in _words(text, width - len(indent)):
        size = cells(word.rstrip(" "))
        if line.strip(" ") and used + size > width:
            yield line.rstrip(" ")
            line, used = indent, len(indent)
        line += word
        used += cells(word)
    yield line.rstrip(" ")


def _words(text: str, width: int) -> Iterator[str]:
    """Words with the spaces around them; one that is too wide for a line comes in parts."""
    for word in _WORD.findall(text):
        part = ""
        for char in word:
            if char != " " and cells(part) + cells(char) > width:
                yield part
                part = ""
            part += char
        yield part


def cells(text: str) -> int:
    """The columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def table(rows: Sequence[tuple[str, ...]], heads: tuple[str, ...]) -> list[str]:
    """Columns as wide as their widest cell, two spaces between them."""
    lines = [heads, *rows]
    widths = [max(len(row[at]) for row in lines) for at in range(len(heads))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in lines]
