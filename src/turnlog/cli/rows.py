"""One line for a row."""

from typing import TYPE_CHECKING, Any

from .text import arguments, moment, short, visible

if TYPE_CHECKING:
    from ..fsm.events import Row

_TEXT = 120


def row_line(row: "Row", *, at: bool = True) -> str:
    """Seq, time, the state after it, who, what."""
    when = f"{moment(row.at)}  " if at else ""
    told = told_of(row.event)
    return (
        f"{row.seq:>5}  {when}{row.state:<17}  {visible(row.actor):<16}  {row.event.kind}{f'  {told}' if told else ''}"
    )


def row_json(row: "Row") -> dict[str, Any]:
    """A row with its whole event."""
    return {
        "session": row.session,
        "seq": row.seq,
        "state": row.state,
        "at": row.at,
        "actor": row.actor,
        "command_id": row.command_id,
        "hash": row.hash.hex(),
        "event": row.event.model_dump(mode="json"),
    }


def told_of(event: Any) -> str:
    """What an event says, in a few words; "" when its kind says all."""
    match event.kind:
        case "session_started":
            names = ", ".join(f"{a.name} ({a.model or 'a person'})" for a in event.agents)
            return visible(f"{names}; owner {event.owner}")
        case "message_added" | "message_queued":
            return f"{visible(event.sender)} to {visible(event.recipient)}: {short(event.text, _TEXT)}"
        case "tools_called":
            calls = ", ".join(f"{visible(c.tool)}({short(c.arguments, _TEXT)})" for c in event.calls)
            return f"{visible(event.speaker)}: {calls}"
        case "approval_requested":
            return (
                f"{visible(event.request_id)} {visible(event.tool)} {arguments(event.arguments, _TEXT)} ({event.why})"
            )
        case "approval_shown":
            return f"{visible(event.request_id)} to {visible(event.connection)}"
        case "approval_resolved":
            edited = f" edited to {arguments(event.arguments, _TEXT)}" if event.arguments is not None else ""
            reason = f' because "{short(event.reason, _TEXT)}"' if event.reason else ""
            return f"{visible(event.request_id)} {event.outcome} via {event.via}{edited}{reason}"
        case "tool_started":
            return f"{visible(event.tool)} attempt {event.attempt}, allowed by {visible(event.permit)}"
        case "tool_returned":
            return f"{event.outcome}: {short(event.content, _TEXT)}"
        case "session_resumed":
            return f"by {visible(event.owner)}, epoch {event.epoch}"
        case _:
            return _fields(event)


def _fields(event: Any) -> str:
    fields = event.model_dump(mode="json", exclude={"kind", "v"}, exclude_defaults=True)
    return " ".join(f"{name}={short(str(value), _TEXT)}" for name, value in fields.items())
