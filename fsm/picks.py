"""What a text says that was asked for in place of a tool call: an answer, a call, or something that must not run.

The rule that everything rests on: a call is the whole text. Around its one JSON object stand at most a fence, a tag
or a word such as `tool_call:`; whatever stands among prose is an explanation, and is shown. Nothing is repaired: what
is cut off, said twice or does not fit is told to the model, which may try again.
"""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

from .canonical import check_depth, clean_json

CUT = "the answer was cut off at the token limit, so nothing of it ran; answer again, with less text"
HEAD_LIMIT = 80  # characters that may stand before the object
# Words that only announce a call. "Example:" is none of them, and neither is "Sure!".
_WORDS = frozenset("""
    action assistant call calls function functioncall functioncalls functions json output pythontag response tool
    toolcall toolcalls toolcode tools
""".split())  # fmt: skip  # noqa: SIM905 - a list literal of it takes twenty lines
_HEAD = re.compile(r"[\w\s:*#<>|\[\]/`.=-]*")
_WORD = re.compile(r"[\w-]+")
_BETWEEN = re.compile(r"(?:[\s,;]|```\w*|</?\|?[\w-]{1,30}\|?>)*")
_THINKING = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)
_LIKE_A_CALL = re.compile(r"""["'](?:name|arguments|parameters)["']\s*:""")
_PIECE = re.compile(
    r'(?P<plain>[^"\\]+)|\\u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})'
    r"|\\u(?P<code>[0-9a-fA-F]{4})|\\(?P<escaped>[^u])",
    re.DOTALL,
)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_PAIR = 12  # characters of an escaped surrogate pair

Check = Callable[[str, str], str]


class Answer(NamedTuple):
    """Words for whoever asked."""

    text: str


class Pick(NamedTuple):
    """A call that fits: `arguments` is the text of a JSON object."""

    name: str
    arguments: str


class Unfit(NamedTuple):
    """What must not run, and why, in words for the model. `harmless` when no tool that is offered was named."""

    problem: str
    harmless: bool = False


class Offer:
    """What may be picked: the names of tools, and the pseudo-tool under which the model answers in words."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self.answer = "answer"
        while self.answer in self.names:
            self.answer += "_"
        opening = rf'\{{\s*"name"\s*:\s*"{self.answer}"\s*,\s*"(?:arguments|parameters)"\s*:\s*\{{\s*"\w+"\s*:\s*"'
        self.spoken = re.compile(opening)
        self._tools = {_plain(name) for name in self.names} - _WORDS
        self._known = self._tools | _WORDS

    def named(self, text: str) -> set[str]:
        """The tools that a text names, plainly written."""
        return {_plain(word) for word in _WORD.findall(text)} & self._tools

    def opening(self, text: str) -> int | None:
        """Where the JSON begins that the text is; -1 where the text is prose, None while that is not to be seen yet."""
        brace = text.find("{", 0, HEAD_LIMIT + 1)
        head = text[:brace] if brace >= 0 else text
        if len(head) > HEAD_LIMIT or _HEAD.fullmatch(head) is None:
            return -1
        words = _WORD.findall(head)
        if brace < 0 and words and text.endswith(words[-1]):
            last = _plain(words.pop())
            if not any(known.startswith(last) for known in (*self._known, "think")):
                return -1
        if not all(_plain(word) in self._known for word in words):
            return -1
        if brace < 0:
            return None
        # The bracket of a list belongs to the JSON.
        return len(head.rstrip()) - 1 if head.rstrip().endswith("[") else brace


def _plain(word: str) -> str:
    return word.lower().replace("_", "").replace("-", "")


def thinking(text: str) -> tuple[str, str]:
    """What a model thought aloud before its answer, and the answer."""
    found = _THINKING.match(text)
    if found is not None:
        return found[1].strip(), text[found.end() :]
    # One that never ended is all that there is.
    return (text.strip().removeprefix("<think>"), "") if text.lstrip().startswith("<think>") else ("", text)


def read(text: str, offer: Offer, check: Check, *, cut: bool = False) -> Answer | Pick | Unfit:
    """What a text (without thinking) says.

    Args:
        text: the model's answer.
        offer: what it could pick.
        check: what is wrong with the arguments (a JSON text) of a tool, "" when they fit.
        cut: whether the answer ended at a limit: then it may be words, but no call.
    """
    if not text.strip():
        return Unfit("the answer was empty", harmless=True)
    start = offer.opening(text)
    if start is None or start < 0:
        return Answer(text)
    if spoken := offer.spoken.match(text, start):
        said, _ = string(text, spoken.end(), last=True)
        return Answer(said) if said.strip() else Unfit("the answer was empty", harmless=True)
    try:
        values, rest = _values(text, start)
    except ValueError as error:
        if _LIKE_A_CALL.search(text) is None:
            return Answer(text)
        return Unfit(CUT if cut else f"that is no complete JSON object ({error})")
    calls = [value for value in values if _is_call(value, offer)]
    if rest or not calls:
        return Answer(text)
    if cut:
        return Unfit(CUT)
    if len(values) > 1:
        return Unfit(f"there are {len(values)} JSON objects in one answer: make one call at a time")
    found = _judge(calls[0], offer, check)
    if isinstance(found, Pick) and (other := offer.named(text[:start]) - {_plain(found.name)}):
        return Unfit(f"the words before the JSON name {', '.join(sorted(other))}, the JSON names {found.name}")
    return found


def string(text: str, at: int, *, last: bool = False) -> tuple[str, int]:
    """The JSON string that goes on at `at` as far as it has come, and where the next piece begins.

    Line breaks may stand in it as they are, and a backslash before any character means that character.
    """
    pieces: list[str] = []
    while found := _PIECE.match(text, at):
        if found["plain"] is not None:
            pieces.append(found["plain"])
        elif found["high"] is not None:
            joined = bytes.fromhex(found["high"] + found["low"]).decode("utf-16-be")
            pieces.append(joined)
        elif found["code"] is not None:
            if not last and len(text) < at + _PAIR and found["code"][:1] in "dD":
                break  # its other half may be on the way
            pieces.append(chr(int(found["code"], 16)))
        else:
            pieces.append(_ESCAPES.get(found["escaped"], found["escaped"]))
        at = found.end()
    return "".join(pieces), at


class Gate:
    """What of a text may be shown while it comes: prose, and the words of the pseudo-tool; never what may be a call."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._text = ""
        self._at = 0
        self._mode = "unsure"
        self.shown = ""

    def feed(self, piece: str) -> str:
        """Take more of the text in, and give what may be shown of it by now."""
        self._text += piece
        if self._mode == "unsure":
            self._decide()
        more = ""
        if self._mode == "prose":
            more, self._at = self._text[self._at :], len(self._text)
        elif self._mode == "words":
            more, self._at = string(self._text, self._at)
        self.shown += more
        return more

    def _decide(self) -> None:
        thought = self._text.lstrip().startswith("<think>")
        if thought and "</think>" not in self._text:
            return
        rest = thinking(self._text)[1] if thought else self._text
        if not rest.strip():
            return
        start = self._offer.opening(rest)
        if start is None:
            return
        begin = len(self._text) - len(rest)
        if start < 0:
            self._mode, self._at = "prose", begin
        elif spoken := self._offer.spoken.match(rest, start):
            self._mode, self._at = "words", begin + spoken.end()
        elif len(rest) - start > 2 * HEAD_LIMIT + len(self._offer.answer):
            self._mode = "held"


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


# Line breaks inside of strings do occur and change no meaning; a key that is there twice has two.
_DECODER = json.JSONDecoder(strict=False, parse_constant=_no_constant, object_pairs_hook=_once)


def _values(text: str, at: int) -> tuple[list[Any], str]:
    """The JSON values that follow each other, and what comes after them; the values of one list count singly."""
    found: list[Any] = []
    while text[at : at + 1] in ("{", "["):
        check_depth(text, at=at)
        value, at = _DECODER.raw_decode(text, at)
        found += value if isinstance(value, list) else [value]
        between = _BETWEEN.match(text, at)
        at = between.end() if between else at
    return found, text[at:]


def _is_call(value: Any, offer: Offer) -> bool:
    inner = _inner(value)
    if not isinstance(inner.get("name"), str):
        return False
    return bool(inner.keys() & {"arguments", "parameters"}) or (inner["name"] in offer.names and len(inner) == 1)


def _inner(value: Any) -> dict[str, Any]:
    """The part with the name: some models wrap it as {"type": "function", "function": {...}}."""
    if not isinstance(value, dict):
        return {}
    if "name" not in value and isinstance(value.get("function"), dict):
        wrapped: dict[str, Any] = value["function"]
        return wrapped if value.keys() <= {"type", "id", "function"} else {}
    return value


def _judge(value: Any, offer: Offer, check: Check) -> Answer | Pick | Unfit:
    call = _inner(value)
    name, known = call["name"], ", ".join((*offer.names, offer.answer))
    if "arguments" in call and "parameters" in call:
        return Unfit('there are "arguments" and "parameters": give "arguments" only')
    arguments = call.get("arguments", call.get("parameters"))
    if isinstance(arguments, str) and name != offer.answer:
        try:
            check_depth(arguments)
            arguments = _DECODER.decode(arguments)
        except ValueError as error:
            return Unfit(f'"arguments" must be a JSON object ({error})')
    if name == offer.answer:
        said = list(arguments.values()) if isinstance(arguments, dict) else [arguments]
        if len(said) != 1 or not isinstance(said[0], str) or not said[0].strip():
            return Unfit(f'{name} needs {{"text": ...}} with the words to say', harmless=True)
        return Answer(said[0])
    if name not in offer.names:
        why = f"there are: {known}" if offer.names else "no tool may be used now, answer in words"
        return Unfit(f"there is no tool {name!r}; {why}", harmless=True)
    if extra := sorted(call.keys() - {"name", "arguments", "parameters", "type", "id"}):
        return Unfit(f'give "name" and "arguments" only, without {", ".join(extra)}')
    arguments = {} if arguments is None else arguments
    if not isinstance(arguments, dict):
        return Unfit(f'"arguments" must be a JSON object, not a {type(arguments).__name__}')
    try:
        text = json.dumps(clean_json(arguments), ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        return Unfit(f"the arguments cannot be used: {error}")
    problem = check(name, text)
    return Unfit(f"the arguments of {name} do not fit: {problem}") if problem else Pick(name, text)
