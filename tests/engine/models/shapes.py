"""The shapes in which servers stream the same thing, in OpenAI's and in Anthropic's style, as bytes."""

from typing import Any, ClassVar

from tests.engine.models.stub_server import (
    ABSENT,
    DONE,
    an_block,
    an_delta,
    an_end,
    an_start,
    chunk,
    fin,
    fragment,
    oc,
    sse,
    txt,
    usage,
)

Steps = list[bytes]
A, B = '{"q":1}', '{"q":2}'
CUT = '{"amount":5,"to":"A'
GRIN = "\U0001f600"


def begin(index: int | None, call_id: Any, name: Any = "look", given: Any = None) -> bytes:
    """The beginning of a call in Anthropic's style; what is ABSENT has no key."""
    block = {"type": "tool_use", "id": call_id, "name": name, "input": {} if given is None else given}
    kept = {key: value for key, value in block.items() if value != ABSENT}
    return sse({"type": "content_block_start", "index": index, "content_block": kept}, "content_block_start")


def part(index: int | None, text: Any) -> bytes:
    """A piece of arguments in Anthropic's style."""
    return an_delta(index, {"type": "input_json_delta", "partial_json": text})  # type: ignore[arg-type]  # no index is a shape, too


def stop(index: int | None) -> bytes:
    """The end of a block in Anthropic's style."""
    return sse({"type": "content_block_stop", "index": index}, "content_block_stop")


class OpenAI:
    """Chat Completions."""

    spec, reasons = "openai:m", {"calls": "tool_calls", "stop": "stop", "length": "length"}

    @staticmethod
    def text(*pieces: str) -> Steps:
        """An answer's text in pieces, without an end."""
        return [txt(piece) for piece in pieces]

    @staticmethod
    def reasoning(piece: str, _signature: str = "") -> Steps:
        """Thinking."""
        return [chunk({"reasoning_content": piece})]

    @staticmethod
    def call(index: int, call_id: str, name: str, *pieces: str) -> Steps:
        """A call whose arguments come in pieces."""
        return [oc(index, call_id, name, ""), *(oc(index, ABSENT, ABSENT, piece) for piece in pieces)]

    @classmethod
    def end(cls, reason: str = "calls") -> Steps:
        """The end mark."""
        return [fin(cls.reasons[reason]), usage(3, 4), DONE]

    @staticmethod
    def twice(reason: str = "calls") -> Steps:
        """Two end marks and a chunk without choices."""
        empty = sse({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m-1", "choices": []})
        return [fin(OpenAI.reasons[reason]), fin(OpenAI.reasons[reason]), usage(3, 4), empty, DONE]

    @staticmethod
    def error(code: str) -> Steps:
        """An error object without choices."""
        return [sse({"error": {"code": code, "message": "bad call", "failed_generation": "{..}"}})]

    one_index: ClassVar[tuple[Steps, ...]] = (
        [oc(0, "a", "look", A), oc(0, "b", "look", B)],
        [oc(0, "a", "look", ""), oc(0, ABSENT, ABSENT, A), oc(0, "b", "look", ""), oc(0, ABSENT, ABSENT, B)],
    )
    interleaved: ClassVar[Steps] = [
        oc(0, "a", "look", ""), oc(1, "b", "look", ""), oc(0, ABSENT, ABSENT, '{"q":'), oc(1, ABSENT, ABSENT, '{"q":2'),
        oc(0, ABSENT, ABSENT, "1}"), oc(1, ABSENT, ABSENT, "}"),
    ]  # fmt: skip
    two_beginnings: ClassVar[tuple[Steps, ...]] = (
        [
            chunk({"tool_calls": [fragment(0, "a", "look", ABSENT), fragment(0, ABSENT, ABSENT, '{"q":')]}),
            oc(0, ABSENT, ABSENT, "1}"),
        ],
    )
    odd_ids: ClassVar[dict[str, Steps]] = {
        "blank": [oc(0, "a", "look", ""), oc(0, "", "", '{"q":'), oc(0, "", ABSENT, "1}"), oc(0, "", "", "")],
        "repeated": [oc(0, "a", "look", '{"q":'), oc(0, "a", "look", "1}")],
        "made up anew": [oc(0, "a", "look", ""), oc(0, "n1", ABSENT, '{"q":'), oc(0, "n2", ABSENT, "1}")],
        "only in the last": [oc(0, "", "look", '{"q":'), oc(0, "", ABSENT, "1}"), oc(0, "a", ABSENT, "")],
        "id and name in the last": [oc(0, "", ABSENT, '{"q":'), oc(0, "", ABSENT, "1}"), oc(0, "a", "look", "")],
    }  # fmt: skip

    @staticmethod
    def without_arguments(index: int, name: str) -> dict[str, Steps]:
        """A call of a tool without arguments, in each way that servers have for it."""
        return {
            "blank": [oc(index, name, name, "")],
            "null": [oc(index, name, name, None)],
            "none": [oc(index, name, name, ABSENT)],
            "braces": [oc(index, name, name, "{}")],
            "blank then braces": [oc(index, name, name, ""), oc(index, ABSENT, ABSENT, "{}")],
        }


class Anthropic:
    """Messages."""

    spec, reasons = "anthropic:claude-x", {"calls": "tool_use", "stop": "end_turn", "length": "max_tokens"}

    @staticmethod
    def text(*pieces: str) -> Steps:
        """An answer's text in pieces, without an end."""
        return an_block(0, {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces))

    @staticmethod
    def reasoning(piece: str, signature: str = "") -> Steps:
        """Thinking."""
        block = {"type": "thinking", "thinking": "", "signature": ""}
        signed = [{"type": "signature_delta", "signature": signature}] if signature else []
        return an_block(0, block, {"type": "thinking_delta", "thinking": piece}, *signed)

    @staticmethod
    def call(index: int, call_id: str, name: str, *pieces: str) -> Steps:
        """A call whose arguments come in pieces."""
        return [begin(index, call_id, name), *(part(index, piece) for piece in pieces), stop(index)]

    @classmethod
    def end(cls, reason: str = "calls") -> Steps:
        """The end mark."""
        return an_end(cls.reasons[reason])

    @classmethod
    def twice(cls, reason: str = "calls") -> Steps:
        """Two end marks, and a block that ends twice."""
        return [stop(0), *cls.end(reason), *cls.end(reason)]

    @staticmethod
    def error(code: str) -> Steps:
        """An error event."""
        return [sse({"type": "error", "error": {"type": code, "message": "bad call"}}, "error")]

    one_index: ClassVar[tuple[Steps, ...]] = (
        [begin(0, "a"), part(0, A), stop(0), begin(0, "b"), part(0, B), stop(0)],
        [begin(0, "a"), part(0, A), begin(0, "b"), part(0, B), stop(0)],
        [
            *an_block(0, {"type": "text", "text": "Let me."}),
            begin(0, "a"),
            part(0, A),
            begin(0, "b"),
            part(0, B),
            stop(0),
        ],
    )
    interleaved: ClassVar[Steps] = [
        begin(0, "a"), begin(1, "b"), part(0, '{"q":'), part(1, '{"q":2'), part(0, "1}"), part(1, "}"),
        stop(0), stop(1),
    ]  # fmt: skip
    two_beginnings: ClassVar[tuple[Steps, ...]] = (
        [begin(0, "a"), begin(0, "a"), part(0, A), stop(0)],
        [begin(0, "a"), part(0, '{"q":'), begin(0, "a"), part(0, "1}"), stop(0)],
        [begin(0, "a", given={"q": 1}), stop(0)],
        [begin(0, "a", given={"q": 1})],
        [begin(0, "a", given={"q": 1}), part(0, A), stop(0)],
        [begin(0, "a", given='{"q":'), part(0, "1}"), stop(0)],
    )
    odd_ids: ClassVar[dict[str, Steps]] = {
        "repeated": [begin(0, "a"), part(0, '{"q":'), begin(0, "a"), part(0, "1}"), part(0, ""), stop(0)],
        "no block end": [begin(0, "a"), part(0, '{"q":'), part(0, "1}")],
        "no index": [begin(None, "a"), part(None, '{"q":'), part(None, "1}"), stop(None)],
    }

    @staticmethod
    def without_arguments(index: int, name: str) -> dict[str, Steps]:
        """A call of a tool without arguments, in each way that servers have for it."""
        first, last = begin(index, name, name), stop(index)
        return {
            "blank": [first, part(index, ""), last],
            "null": [first, part(index, None), last],
            "none": [begin(index, name, name, ABSENT), last],
            "braces": [first, part(index, "{}"), last],
            "blank then braces": [first, part(index, ""), part(index, "{}"), last],
        }


Style = type[OpenAI] | type[Anthropic]
STYLES: tuple[Style, ...] = (OpenAI, Anthropic)


def whole(style: Style, *steps: bytes) -> Steps:
    """The steps with what opens a stream in this style."""
    return [an_start(), *steps] if style is Anthropic else list(steps)
