"""What a model is told beside its role and the history: more parts of the system prompt, and documents.

Sources are asked once a turn. What they gave is kept as blobs and told by a row before the model is asked, so that a
session that is resumed uses the same, and `rebuild` gives back every byte that was sent.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ..fsm import inputs as inp
from ..fsm.canonical import clean, text_digest
from ..fsm.history import Message, UserMessage
from ..fsm.session import Session
from .models.base import ModelCall
from .values import told

if TYPE_CHECKING:
    from .agents import Agent
    from .threads import Threads

HEAD = "Documents, as they are now:"
role_digest = lru_cache(text_digest)  # an agent is asked again and again with the same texts
Blob = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class Document:
    """A text that a model may need, and where it is from."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Asking:
    """Who is about to answer what. `text` is the newest message to the agent; of a group, all that was said."""

    session: str
    owner: str
    agent: str
    text: str


Found = str | Document | Iterable[str | Document] | None
Source = Callable[[Asking], Found | Awaitable[Found]] | Callable[[], Found | Awaitable[Found]]


class Told(NamedTuple):
    """The system text with the digests of it, of its parts, and of what is added to the newest message."""

    system: str
    digest: str
    parts: tuple[str, ...] = ()
    context: str = ""


def asking(session: Session, agent: str, messages: Sequence[Message]) -> Asking:
    """What the sources are asked with, given what the agent sees."""
    newest = next((said.text for said in reversed(messages) if isinstance(said, UserMessage)), "")
    return Asking(session.id, session.owner, agent, newest)


def joined(role: str, parts: Iterable[str]) -> str:
    """The system text."""
    more = list(parts)
    return "\n\n".join([text for text in (role, *more) if text.strip()]) if more else role


def static_parts(agents: Iterable["Agent"]) -> list[str]:
    """The parts that are plain texts: they are kept once, for all sessions."""
    return [clean(part) for agent in agents for part in agent.parts if isinstance(part, str) and part.strip()]


def told_to(session: Session, agent: "Agent", role: str, blob: Blob) -> Told:
    """What `agent` is told in the open turn: as it was fetched, else its plain texts."""
    fetched = session.fetched.get(agent.name)
    if fetched is None:
        parts = static_parts((agent,))
        system = joined(role, parts)
        return Told(system, role_digest(system), tuple(map(role_digest, parts)))
    system = joined(role, [blob(one).decode() for one in fetched.parts])
    return Told(system, role_digest(system), fetched.parts, fetched.context)


def with_documents(call: ModelCall, context: str) -> ModelCall:
    """The call with documents added to the newest message of the user."""
    messages = list(call.messages)
    for place in reversed(range(len(messages))):
        said = messages[place]
        if isinstance(said, UserMessage):
            text = "\n\n".join(part for part in (said.text, context) if part.strip())
            messages[place] = UserMessage(text, said.attachments)
            return replace(call, messages=messages)
    return replace(call, messages=[UserMessage(context), *messages])


# Asking the sources -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fetched:
    """What the sources gave: texts, the names of the documents, and what went wrong."""

    parts: tuple[str, ...]
    context: str
    documents: tuple[str, ...]
    problems: tuple[str, ...]


async def fetch(agent: "Agent", asking: Asking, threads: "Threads") -> Fetched:
    """Ask all sources of an agent at the same time. One that fails becomes a note for the model, and a problem."""
    problems: list[str] = []

    async def text_of(part: str | Source) -> str:
        if isinstance(part, str):
            return clean(part)
        found = await _ask(part, asking, threads)
        if isinstance(found, list):
            return laid_out(found)
        problems.append(f"part {_name(part)}: {found}")
        return f"(A part of these instructions, {_name(part)}, could not be fetched: {found})"

    async def context() -> tuple[str, tuple[str, ...]]:
        if agent.context is None:
            return "", ()
        found = await _ask(agent.context, asking, threads)
        if isinstance(found, str):
            problems.append(f"context {_name(agent.context)}: {found}")
            return f"(The documents could not be fetched: {found})", ()
        text = laid_out(found)
        return (f"{HEAD}\n\n{text}" if text else ""), tuple(one.name for one in found if one.name)

    parts, (text, names) = await asyncio.gather(asyncio.gather(*map(text_of, agent.parts)), context())
    return Fetched(tuple([part for part in parts if part.strip()]), text, names, tuple(sorted(problems)))


async def _ask(source: Source, asking: Asking, threads: "Threads") -> list[Document] | str:
    """The documents, or in words why there are none."""
    try:
        return documents(await _found(source, asking, threads))
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return clean(told(error))  # the source cancelled itself
    except Exception as error:  # noqa: BLE001 - a source is anybody's code
        return clean(told(error))


async def _found(source: Source, asking: Asking, threads: "Threads") -> Any:
    found: Any = None
    if inspect.iscoroutinefunction(source):
        found = _called(source, asking)
    else:  # it may read files: not in the event loop
        kept: list[Any] = []

        def ask() -> str:
            kept.append(_called(source, asking))
            return ""

        _, failed = await threads.run(f"source {_name(source)}", ask, {})
        if failed is not None:
            raise failed if isinstance(failed, Exception) else RuntimeError(told(failed))
        found = kept[0]
    return await found if inspect.isawaitable(found) else found


def _called(source: Any, asking: Asking) -> Any:
    try:
        inspect.signature(source).bind(asking)
    except TypeError:  # it wants to know nothing
        return source()
    except ValueError:  # it does not tell what it wants
        pass
    return source(asking)


def documents(found: Any) -> list[Document]:
    """What a source gave, as documents with clean texts; those without a text are left out.

    Raises:
        TypeError: it is neither text nor documents.
    """
    if found is None:
        return []
    if isinstance(found, str | Document):
        found = [found]
    if isinstance(found, dict | bytes) or not isinstance(found, Iterable):
        raise TypeError(f"a source must return texts or Documents, this is a {type(found).__name__}")
    given: list[Document] = []
    for one in found:
        document = Document("", one) if isinstance(one, str) else one
        if not isinstance(document, Document):
            raise TypeError(f"a source must return texts or Documents, one is a {type(one).__name__}")
        given.append(Document(clean(str(document.name)), clean(document.text)))
    return [one for one in given if one.text.strip()]


def laid_out(found: Sequence[Document]) -> str:
    """Documents as one text."""
    return "\n\n".join(f"[{one.name}]\n{one.text}" if one.name else one.text for one in found)


def _name(source: Source) -> str:
    return clean(str(getattr(source, "__name__", type(source).__name__)))


async def recorded(
    fetched: Fetched, speaker: str, key: str, keep: Callable[[bytes], Awaitable[str]]
) -> inp.ContextCame:
    """Keep the texts, and say so to the machine."""
    parts = tuple([await keep(part.encode()) for part in fetched.parts])
    context = await keep(fetched.context.encode()) if fetched.context else ""
    return inp.ContextCame(key, speaker, context, parts, fetched.documents, fetched.problems)
