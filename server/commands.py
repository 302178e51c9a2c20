"""What each command does. A handler answers its frame exactly once; whatever it raises becomes an error frame."""

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ..engine.conversation import Conversation
from ..engine.forks import lands
from ..engine.proposals import edit
from ..fsm import inputs as inp
from ..fsm.approval import Standing
from ..fsm.canonical import clean
from ..fsm.errors import (
    CommandReused,
    CorruptLog,
    Error,
    Fenced,
    Misuse,
    StorageError,
    StorageFull,
    UnknownSession,
)
from ..fsm.events import InputRefused, Limits, SessionStarted
from ..store.base import EventLog
from . import frames as fr
from .room import Room
from .view import View

if TYPE_CHECKING:
    from .connection import Connection

PART = 65_536  # characters of one part of a large body
SCAN = 300  # sessions that one list command looks at
TRIES = 20  # refused tries of one principal in one session that become rows; more only fill the log
CODES: tuple[tuple[type[Error], str], ...] = (
    (UnknownSession, "unknown_session"),
    (CommandReused, "conflict"),
    (StorageFull, "storage_full"),
    (StorageError, "storage_failed"),
    (Fenced, "fenced"),
    (CorruptLog, "corrupt"),
    (Misuse, "invalid"),
)


class Denied(Exception):
    """A command that is not carried out. `session` and `seq` only when the principal may see the session."""

    def __init__(self, code: str, message: str, session: str | None = None, seq: int | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.session, self.seq = code, message, session, seq


def code_of(error: Error) -> str:
    """The code of an error frame."""
    return next((code for kind, code in CODES if isinstance(error, kind)), "unavailable")


def unknown(session: str) -> Denied:
    """What is said of a session that does not exist, and of one that the principal may not see."""
    return Denied("unknown_session", f"no session has the id {session!r}: `list` tells those there are")


async def handle(connection: "Connection", frame: fr.ClientCommand) -> None:
    """Carry a command out.

    Raises:
        Denied, Error: nothing was changed.
    """
    await HANDLERS[type(frame)](connection, frame)


def _visible(connection: "Connection", session: str, frame: fr.ClientCommand) -> None:
    """Refuse what the principal may not do; tries to change something are put on record."""
    principal = connection.principal
    try:
        owner = connection.server.owner_of(session)
    except CorruptLog:
        if principal.all_sessions:
            raise
        owner = None  # whose it was cannot be read
    if owner is None or not principal.sees(owner):
        if owner is not None:
            _record(connection, session, frame, frame.type)
        raise unknown(session)
    if (verb := principal.lacks(_verbs(frame))) is not None:
        _record(connection, session, frame, verb)
        head = connection.server.engine.log.head(session)
        instead = "ask a controller" if verb == frame.type else "leave out `remember`, or ask a controller"
        raise Denied(
            "unauthorised", f"the role {principal.role} may not {verb}: {instead}", session, head.seq if head else 0
        )


def _verbs(frame: fr.ClientCommand) -> tuple[str, ...]:
    """What somebody must be allowed to do who sends this: a word that is remembered is a grant as well."""
    return (frame.type, "grant") if isinstance(frame, fr.Decide) and frame.remember else (frame.type,)


def _record(connection: "Connection", session: str, frame: fr.ClientCommand, verb: str) -> None:
    who = connection.principal
    tries, key = connection.server.tokens.tries, (who.name, session)
    if type(frame) not in CHANGES or tries[key] >= TRIES:
        return
    tries[key] += 1
    last = "; further tries are not recorded" if tries[key] == TRIES else ""
    refused = InputRefused(
        code="unauthorised",
        input=frame.type,
        why=f"{who.name} ({who.role}) may not {verb} in this session{last}",
        about=getattr(frame, "request", "") or getattr(frame, "grant", ""),
    )
    connection.server.later(_put(connection, session, inp.Refuse(refused, who.actor)))


async def _put(connection: "Connection", session: str, given: inp.Input) -> None:
    (await connection.server.engine.hub(session)).put(given)


# Commands that change a session -----------------------------------------------------------------


def _input(frame: Any, actor: str, room: Room) -> inp.Input:
    match frame:
        case fr.Send():
            return inp.Say(clean(frame.text), actor, frame.sender, frame.recipient)
        case fr.Decide():
            return _decision(frame, actor, room)
        case fr.Answer():
            return inp.Answer(frame.request, None if frame.answers is None else tuple(frame.answers), actor)
        case fr.Stop():
            return inp.Stop(actor, frame.scope == "session")
        case fr.Retry():
            return inp.Retry(actor)
        case fr.Continue():
            return inp.Continue(actor)
        case fr.Grant():
            return inp.Grant(
                frame.tool, actor, room.live.session.owner, frame.scope, frame.match, frame.expires_at, frame.max_uses
            )  # fmt: skip
        case fr.Revoke():
            return inp.Revoke(frame.grant, actor, room.live.session.owner, frame.reason, tuple(standing(room)))
        case _:
            raise TypeError(f"{type(frame).__name__} changes no session")


def _decision(frame: fr.Decide, actor: str, room: Room) -> inp.Decide:
    edited = None
    if frame.arguments is not None:
        request = room.live.session.request(frame.request)
        edited = edit(frame.arguments, room.server.engine.registry.get(request.tool) if request else None)
    return inp.Decide(
        frame.request,
        frame.digest,
        frame.outcome,
        actor,
        frame.reason,
        edited,
        frame.result,
        frame.remember,
        frame.exact,
    )


async def _change(connection: "Connection", frame: Any) -> None:
    _visible(connection, frame.session, frame)
    principal = connection.principal
    async with connection.server.using(frame.session) as room:
        given = _input(frame, principal.actor, room)
        content = frame.model_dump(mode="json", exclude={"id"})
        conversation = Conversation(connection.server.engine, room.live)
        outcome = await conversation.apply(given, command_id(connection, frame.id), content)
    refusal = outcome.refusal
    refused = fr.Refused(code=refusal.code, why=refusal.why) if refusal else None
    connection.reply(
        fr.Reply(id=frame.id, session=frame.session, seq=outcome.seq, refused=refused, repeated=outcome.repeated)
    )


def command_id(connection: "Connection", given: str) -> str:
    """The id under which the log keeps a command: no principal can collide with another's."""
    return f"{connection.principal.name}/{given}"


# Sessions and views ------------------------------------------------------------------------------


async def _create(connection: "Connection", frame: fr.Create) -> None:
    principal, engine = connection.principal, connection.server.engine
    if not principal.may("create"):
        raise Denied("unauthorised", f"the role {principal.role} may not create: ask a controller")
    name = frame.session or _fresh(connection, frame.id)
    given = frame.limits.model_dump(exclude_none=True) if frame.limits else {}
    limits = engine.limits.model_copy(update=given)
    if engine.log.head(name) is not None:
        if not _same(engine.log, name, principal.name, frame.entry, limits):
            raise Denied("conflict", f"the id {name!r} is taken: choose another, or leave it out")
        connection.reply(fr.Reply(id=frame.id, session=name, seq=1, repeated=True))
        return
    conversation = await engine.create(
        name, owner=principal.name, entry=frame.entry, limits=limits, actor=principal.actor
    )
    connection.reply(fr.Reply(id=frame.id, session=name, seq=conversation.session.seq))


def _same(log: EventLog, name: str, owner: str, entry: str, limits: Limits) -> bool:
    try:
        first = log.read(name, 0, 1)[0].event
    except CorruptLog:
        return False
    return isinstance(first, SessionStarted) and (first.owner, first.entry, first.limits) == (owner, entry, limits)


def _fresh(connection: "Connection", given: str) -> str:
    """A session id made from the command id: a resend after a lost connection finds what the first one made."""
    return "s_" + sha256(command_id(connection, given).encode()).hexdigest()[:24]


async def _fork(connection: "Connection", frame: fr.Fork) -> None:
    _visible(connection, frame.session, frame)
    principal, engine = connection.principal, connection.server.engine
    name = frame.new or _fresh(connection, frame.id)
    if engine.log.head(name) is not None:
        if not _forked(engine.log, name, principal.name, frame):
            raise Denied("conflict", f"the id {name!r} is taken: choose another, or leave it out")
        connection.reply(fr.Reply(id=frame.id, session=name, seq=1, repeated=True))
        return
    fork = await engine.fork(frame.session, frame.seq, name, owner=principal.name, actor=principal.actor)
    connection.reply(fr.Reply(id=frame.id, session=name, seq=fork.session.seq))


def _forked(log: EventLog, name: str, owner: str, frame: fr.Fork) -> bool:
    try:
        first = log.read(name, 0, 1)[0].event
        return (
            isinstance(first, SessionStarted)
            and first.parent is not None
            and (first.owner, first.parent.session) == (owner, frame.session)
            and lands(log, frame.session, frame.seq, first.parent.seq)
        )
    except CorruptLog:
        return False


async def _open(connection: "Connection", frame: fr.Open) -> None:
    _visible(connection, frame.session, frame)
    if frame.session in connection.views:
        raise Denied(
            "conflict",
            "this connection views the session already: close it first",
            frame.session,
            connection.views[frame.session].sent,
        )
    if len(connection.views) >= connection.server.limits.views:
        raise Denied("limit", f"this connection views {len(connection.views)} sessions already: close one")
    async with connection.server.using(frame.session) as room:
        head = room.live.session.seq
        if frame.after > head:
            raise Denied(
                "ahead",
                f"after is {frame.after}, but the session ends at seq {head}: open it anew",
                frame.session,
                head,
            )
        view = View(connection, room, frame.after, deltas=frame.deltas, notes=frame.notes)
        connection.reply(fr.Reply(id=frame.id, session=frame.session, seq=head))
        connection.views[frame.session] = view
        room.join(view)
        connection.wake()


async def _close(connection: "Connection", frame: fr.Close) -> None:
    view = connection.views.get(frame.session)
    if view is None:
        raise Denied("invalid", f"this connection does not view {frame.session!r}: open it first")
    connection.leave(view)
    connection.reply(fr.Reply(id=frame.id, session=frame.session, seq=view.sent))


async def _list(connection: "Connection", frame: fr.ListSessions) -> None:
    lines: list[fr.SessionLine] = []
    after, scanned = frame.after, 0
    more = True
    while more and len(lines) < frame.limit and scanned < SCAN:
        await asyncio.sleep(0)
        page = connection.server.engine.log.sessions(after, 50)
        more = bool(page)
        for info in page:
            after, scanned = info.id, scanned + 1
            if connection.principal.sees(info.owner):
                lines.append(
                    fr.SessionLine(
                        session=info.id, seq=info.seq, state=info.state, owner=info.owner, first_at=info.first_at,
                        last_at=info.last_at, broken=info.broken, parent=info.parent, parent_seq=info.parent_seq,
                    )
                )  # fmt: skip
            if len(lines) == frame.limit:
                break
    connection.reply(fr.Sessions(id=frame.id, sessions=tuple(lines), next=after if more else None))


def standing(room: Room) -> list[Standing]:
    """The grants that hold in a session: its own and its owner's."""
    session = room.live.session
    return [*session.grants, *room.server.engine.grants.of(session.owner)]


async def _grants(connection: "Connection", frame: fr.Grants) -> None:
    _visible(connection, frame.session, frame)
    async with connection.server.using(frame.session) as room:
        lines = tuple(
            fr.GrantLine(
                grant=one.grant.grant_id, subject=one.grant.subject, tool=one.grant.tool, scope=one.grant.scope,
                match=one.grant.match, expires_at=one.grant.expires_at, max_uses=one.grant.max_uses, used=one.used,
            )
            for one in standing(room)
        )  # fmt: skip
        connection.reply(fr.GrantsTold(id=frame.id, session=frame.session, seq=room.head, grants=lines))


async def _fetch(connection: "Connection", frame: fr.Fetch) -> None:
    _visible(connection, frame.session, frame)
    text = connection.server.body_text(frame.session, frame.seq)
    if text is None:
        raise Denied("invalid", f"the session has no row {frame.seq}", frame.session, frame.seq)
    parts = [text[at : at + PART] for at in range(0, len(text), PART)]
    if frame.part >= len(parts):
        raise Denied("invalid", f"the body has {len(parts)} parts, numbered from 0", frame.session, frame.seq)
    connection.reply(
        fr.Part(
            id=frame.id, session=frame.session, seq=frame.seq, part=frame.part, parts=len(parts), text=parts[frame.part]
        )
    )  # fmt: skip


CHANGES: tuple[type, ...] = (fr.Send, fr.Decide, fr.Answer, fr.Stop, fr.Retry, fr.Continue, fr.Grant, fr.Revoke)
HANDLERS: dict[type, Callable[["Connection", Any], Awaitable[None]]] = {
    **dict.fromkeys(CHANGES, _change),
    fr.Create: _create,
    fr.Fork: _fork,
    fr.Open: _open,
    fr.Close: _close,
    fr.ListSessions: _list,
    fr.Grants: _grants,
    fr.Fetch: _fetch,
}
