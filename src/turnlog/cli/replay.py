"""`turnlog replay`: the rows of a session up to a seq, and where it stood then. It calls no model and no tool."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import DEFAULT_DB, AsJson, Db, existing, reading
from .rows import row_json, row_line
from .text import arguments, moment, plain, short, to_json, visible

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
    with reading(db) as reader:
        rows = read_rows(reader, existing(reader, session), to)
    state = _fold(rows)
    if sender or recipient:
        _messages(rows, sender, recipient, as_json=as_json)
    elif history:
        _history(rows, state, as_node, as_json=as_json)
    elif as_json:
        print(to_json({"rows": [row_json(row) for row in rows], "session": session_json(state)}))
    else:
        for row in rows:
            print(row_line(row))
        print()
        for line in standing(state):
            print(line)


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


def standing(s: "Session") -> list[str]:
    """Where a session stands, in lines."""
    lines = [f"session {visible(s.id)} at seq {s.seq}: {s.state}"]
    if s.state in ("success", "interrupt"):
        lines.append(f"next to speak: {visible(s.speaker)}, to {visible(s.listener)}")
    for agent in s.agents.values():
        tools = f", tools: {', '.join(agent.tools)}" if agent.tools else ""
        lines.append(visible(f"node {agent.name}: {agent.model or 'a person'}{tools}"))
    lines += [visible(f"channel {c.name}: {', '.join(c.members)}") for c in s.channels.values()]
    lines += [f"open call {c.id}: {visible(c.tool)} {arguments(c.arguments, 500)}, {c.status}" for c in s.open_calls]
    for one in s.requests:
        until = f", until {moment(one.deadline)}" if one.deadline is not None else ""
        shown = arguments(one.arguments, 500)
        lines.append(f"open request {one.request_id}: {visible(one.tool)} {shown} [{one.digest[:12]}]{until}")
    if s.question is not None:
        lines += [f"open question {s.question.request_id}: {visible(q.text)}" for q in s.question.questions]
    lines += [f"queued: {short(one.text)}" for one in s.queue]
    return lines


def _messages(rows: "list[Row]", sender: str, recipient: str, *, as_json: bool) -> None:
    from ..fsm.history import between, collect

    found = between(collect([], rows), sender, recipient)
    if as_json:
        print(to_json([_message(one) for one in found]))
        return
    for one in found:
        message = _message(one)
        print(f"{one.first:>5}  {visible(one.speaker)} to {visible(one.listener)}: {visible(message['text'])}")


def _message(one: "Exchange") -> dict[str, Any]:
    return {"seq": one.first, "sender": one.speaker, "recipient": one.listener, "text": one.said.text}


def _history(rows: "list[Row]", s: "Session", node: str, *, as_json: bool) -> None:
    from ..fsm.errors import Misuse
    from ..fsm.history import collect, view

    if node and node not in s.agents:
        raise Misuse(f"there is no node {node!r} in session {s.id!r}: use one of {', '.join(s.agents)}")
    speaker, listener = _sides(s, node)
    group = s.channels.get(listener)
    messages = view(collect([], rows), speaker, listener, group.members if group else ())
    if as_json:
        from dataclasses import asdict

        told = [{"type": type(one).__name__, **asdict(one)} for one in messages]
        print(to_json({"speaker": speaker, "listener": listener, "messages": told}))
        return
    print(f"what {visible(speaker)} sees when it is to answer {visible(listener)}:")
    for message in messages:
        print(_told(message))


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
        return f"tool {visible(message.name)} ({message.outcome}): {plain(message.content)}"
    if isinstance(message, AssistantMessage):
        calls = "".join(f"\n  calls {visible(c.name)} {visible(c.arguments)}" for c in message.calls)
        return f"assistant: {plain(message.text)}{calls}"
    return f"user: {plain(message.text)}"
