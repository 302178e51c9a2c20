"""`turnlog replay`: the rows of a session up to a seq, and where it stood then. It calls no model and no tool."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import DEFAULT_DB, AsJson, Db, existing, reading
from .rows import row_json, row_line
from .text import arguments, marked, moment, plain, say, short, to_json, visible

if TYPE_CHECKING:
    from ..fsm.events import Row
    from ..fsm.history import Exchange, Message
    from ..fsm.session import Session
    from ..store import LogReader


def replay(
    session: Annotated[str, typer.Argument(help="The session.")],
    *,
    to: Annotated[int | None, typer.Option("--to", min=1, help="The last row to look at.")] = None,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
    history: Annotated[bool, typer.Option("--history", help="Print what the model would see next.")] = False,
    as_node: Annotated[str, typer.Option("--as", help="With --history: the node whose side is shown.")] = "",
    sender: Annotated[str, typer.Option("--from", help="Only messages between this node ...")] = "",
    recipient: Annotated[str, typer.Option("--to-node", help="... and this one; one alone: all from, or all to.")] = "",
) -> None:
    """Rebuild a session from its rows, up to any of them. No model and no tool is called, nothing is written."""
    pair = bool(sender or recipient)
    if as_node and not history:
        raise typer.BadParameter("it needs --history: it names the node whose history is shown", param_hint="--as")
    if history and pair:
        raise typer.BadParameter("it does not go with --from and --to-node: ask twice", param_hint="--history")
    with reading(db) as reader:
        rows = read_rows(reader, existing(reader, session), to)
    if to is not None and len(rows) < to:
        raise typer.BadParameter(f"session {session!r} ends at seq {len(rows)}", param_hint="--to")
    state = _fold(rows)
    if pair:
        _messages(rows, sender, recipient, as_json=as_json)
    elif history:
        _history(rows, state, as_node, as_json=as_json)
    elif as_json:
        say(to_json({"rows": [row_json(row) for row in rows], "session": session_json(state)}))
    else:
        for row in rows:
            say(row_line(row))
        say()
        for line in [*standing(state), *lineage(rows)]:
            say(line)


def read_rows(reader: "LogReader", session: str, to: int | None) -> "list[Row]":
    """The rows of a session up to seq `to`. What comes after it is not read, so it may be damaged."""
    rows: list[Row] = []
    while to is None or len(rows) < to:
        page = reader.read(session, len(rows), 500 if to is None else min(500, to - len(rows)))
        if not page:
            break
        rows += page
    return rows


def _fold(rows: "list[Row]") -> "Session":
    from ..fsm.session import replay as fold

    return fold(rows)


def session_json(session: "Session") -> Any:
    """The whole state: nodes with their tools, channels, open calls and requests, queue, limits."""
    from ..fsm.session import SnapshotOf

    return dict(zip(session._fields, SnapshotOf.dump_python(session, mode="json"), strict=True))


def lineage(rows: "list[Row]") -> list[str]:
    """Where a fork comes from; nothing for other sessions."""
    first = rows[0].event if rows else None
    parent = first.parent if first is not None and first.kind == "session_started" else None
    return [] if parent is None else [f"forked from {visible(parent.session)} at seq {parent.seq} ({parent.hash[:12]})"]


def standing(s: "Session") -> list[str]:
    """Where a session stands, in lines."""
    lines = [f"session {visible(s.id)} at seq {s.seq}: {s.state}"]
    if s.state in ("success", "interrupt"):
        lines.append(f"next to speak: {visible(s.speaker)}, to {visible(s.listener)}")
    for agent in s.agents.values():
        tools = f", tools: {', '.join(agent.tools)}" if agent.tools else ""
        lines.append(visible(f"node {agent.name}: {agent.model or 'a person'}{tools}"))
    lines += [visible(f"channel {c.name}: {', '.join(c.members)}") for c in s.channels.values()]
    lines += [
        f"open call {visible(c.id)}: {visible(c.tool)} {arguments(c.arguments, 500)}, {c.status}" for c in s.open_calls
    ]
    for one in s.requests:
        until = f", until {moment(one.deadline)}" if one.deadline is not None else ""
        what = f"{visible(one.tool)} {arguments(one.arguments, 500)} {marked(one.digest)}"
        lines.append(f"open request {visible(one.request_id)}: {what}{until}")
    if s.question is not None:
        asked = visible(s.question.request_id)
        lines += [f"open question {asked}: {visible(q.text)}" for q in s.question.questions]
    lines += [f"queued: {short(one.text)}" for one in s.queue]
    return lines


def _messages(rows: "list[Row]", sender: str, recipient: str, *, as_json: bool) -> None:
    from ..fsm.history import between, collect

    found = between(collect([], rows), sender, recipient)
    if as_json:
        say(to_json([_message(one) for one in found]))
        return
    for one in found:
        message = _message(one)
        say(f"{one.first:>5}  {visible(one.speaker)} to {visible(one.listener)}: {visible(message['text'])}")


def _message(one: "Exchange") -> dict[str, Any]:
    return {"seq": one.first, "sender": one.speaker, "recipient": one.listener, "text": one.said.text}


def _history(rows: "list[Row]", s: "Session", node: str, *, as_json: bool) -> None:
    from ..fsm.errors import Misuse
    from ..fsm.history import collect, view

    if node and node not in s.agents:
        raise Misuse(f"there is no node {node!r} in session {s.id!r}: use one of {', '.join(map(repr, s.agents))}")
    speaker, listener = _sides(s, node)
    group = s.channels.get(listener)
    messages = view(collect([], rows), speaker, listener, group.members if group else ())
    if as_json:
        from dataclasses import asdict

        told = [{"type": type(one).__name__, **asdict(one)} for one in messages]
        say(to_json({"speaker": speaker, "listener": listener, "messages": told}))
        return
    say(f"what {visible(speaker)} sees when it is to answer {visible(listener)}:")
    for message in messages:
        say(_told(message))


def _sides(s: "Session", node: str) -> tuple[str, str]:
    """Who would be asked next, and whom they answer."""
    if not node:
        agent = s.agents.get(s.speaker)
        node = s.speaker if agent is not None and agent.model else s.listener
        if node in s.channels:
            node = s.channels[node].members[0]
    if node == s.speaker:
        return node, s.listener
    channel = next((name for name in (s.speaker, s.listener) if name in s.channels), "")
    if channel:
        return node, channel
    return node, s.speaker if node == s.listener else s.seat()


def _told(message: "Message") -> str:
    from ..fsm.history import AssistantMessage, ToolMessage

    if isinstance(message, ToolMessage):
        return f"tool {visible(message.name)} ({message.outcome}): {_indented(message.content)}"
    if isinstance(message, AssistantMessage):
        calls = "".join(f"\n  calls {visible(c.name)} {visible(c.arguments)}" for c in message.calls)
        return f"assistant: {_indented(message.text)}{calls}"
    return f"user: {_indented(message.text)}"


def _indented(text: str) -> str:
    """What was written begins no line that looks like another message."""
    return plain(text).replace("\n", "\n    ")
