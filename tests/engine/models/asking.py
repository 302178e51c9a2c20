"""Asks a stub server through the adapter and checks what must hold of every answer."""

from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from tests.engine.models.stub_server import Asked, Script, stub_server
from turnlog.engine.models.base import (
    CallDelta,
    Delta,
    ModelCall,
    ModelError,
    ModelReply,
    ReasoningDelta,
    TextDelta,
    ToolDefinition,
)
from turnlog.engine.models.pydantic_ai import Blobs, open_model
from turnlog.fsm.history import Message, UserMessage

LOOK = ToolDefinition("look", "Looks.", {"type": "object", "properties": {"q": {"type": "integer"}}, "required": ["q"]})


@dataclass
class Heard:
    """What came of one request. Exactly one of `replies` and `errors` holds something."""

    deltas: list[Delta] = field(default_factory=list)
    replies: list[ModelReply] = field(default_factory=list)
    errors: list[ModelError] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    @property
    def reply(self) -> ModelReply:
        assert not self.errors, self.errors
        return self.replies[0]

    @property
    def error(self) -> ModelError:
        assert not self.replies, self.replies
        return self.errors[0]

    @property
    def body(self) -> dict[str, Any]:
        return self.asked[0].body

    @property
    def said(self) -> list[tuple[str, str]]:
        """The calls, as name and argument text."""
        return [(call.name, call.arguments) for call in self.reply.calls]


async def hear(
    *steps: bytes,
    messages: list[Message] | None = None,
    system: str = "Be brief.",
    spec: str = "openai:m",
    settings: dict[str, Any] | None = None,
    api_key: str | None = None,
    blobs: Blobs | None = None,
    script: Script | None = None,
) -> Heard:
    """Send one call to a server that answers with these steps."""
    heard = Heard()
    call = ModelCall(system, [UserMessage("hi")] if messages is None else messages, (LOOK,))
    async with stub_server() as stub:
        stub.scripts = [script or Script(steps)]
        url = stub.url if spec.startswith("anthropic:") else f"{stub.url}/v1"
        model = open_model(spec, base_url=url, api_key=api_key, settings=settings, blobs=blobs)
        try:
            async with aclosing(model.stream(call)) as stream:
                async for item in stream:
                    if isinstance(item, ModelReply):
                        heard.replies.append(item)
                    else:
                        assert not heard.replies, "the reply comes last"
                        heard.deltas.append(item)
        except ModelError as error:
            heard.errors.append(error)
        finally:
            await model.aclose()
        heard.asked = stub.asked
    _agrees(heard)
    return heard


def _agrees(heard: Heard) -> None:
    assert len(heard.asked) == 1, "one call is one request"
    assert len(heard.replies) + len(heard.errors) == 1
    for reply in heard.replies:
        assert reply.text == "".join(d.text for d in heard.deltas if isinstance(d, TextDelta))
        assert reply.reasoning == "".join(d.text for d in heard.deltas if isinstance(d, ReasoningDelta))
        for index, call in enumerate(reply.calls):
            pieces = [d for d in heard.deltas if isinstance(d, CallDelta) and d.index == index]
            assert call.arguments == "".join(piece.arguments for piece in pieces)
            assert call.name == pieces[-1].name
