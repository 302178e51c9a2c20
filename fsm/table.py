"""The machine, written once.

Why a table, and why so small
-----------------------------
An agent's conversation is usually a call stack: start calls chat, chat calls reply, reply calls a model, the model
asks for a tool, the tool waits for a person, and while that person thinks the whole position of the conversation
lives in frames and promises of one process. It cannot be saved, so it cannot survive; it cannot be read, so it cannot
be audited. Here the position is data. A session is in one of five states, events move it, and every event is a row
of a log before anybody acts on it. After a crash the rows are folded again and the session stands where it stood.

Five states
-----------
success            the machine moves: something is owed to it by a model, a tool or a choice of speaker
interrupt          a person (or whoever sits in the awaited seat) is to speak; the initial state
error              a model failed; a person may retry, speak or end it
awaiting_approval  one or more calls wait for a word; nothing of the round runs
terminated         the end; only refusals are recorded from here on

There is no state "running tool" or "calling model". What is in flight follows from the rows: `pending(session)`
computes it, and because it is computed it can never disagree with the log.

What an event does, and which event is emitted
----------------------------------------------
The table answers one question only: given the state and the kind of an event, what is the next state? It has no
guards. A guard that decides *whether* something happens is ordinary Python in `decide.py`, and its result is *which
event* is emitted. So everything conditional can be read in one place, the diagram shows all there is, and each stored
row can be checked against this table for ever, whatever the code around it has become.

What replaces recursion
-----------------------
There are two sorts of moves. Some events are caused from outside: a person speaks, a model replies, a tool returns, a
timer fires. Others follow from where the session then stands: no request is open any more, so the approvals are
settled; the agent has answered, so it is the person's turn. `decide` lets the first sort in once and then runs the
second sort to a fixed point, in a loop. A conversation of a hundred thousand steps is a hundred thousand turns of
that loop, never a stack a hundred thousand deep.

Who wins
--------
One session has one inbox and one writer, so two inputs never race inside the machine: the first one in the inbox
wins and the second one meets the state that the first one left. What it wanted may then be impossible. It is told so
with a reason, and the refusal is a row as well (`input_refused`), because a losing decision is part of an audit.

What `success` means for history
--------------------------------
What a model sees of the past is the rows that left the session in `success`, of three kinds: message_added,
tools_called, tool_returned. These three have no row here that ends elsewhere. So a placeholder of an interrupt, of an
error or of a waiting approval cannot reach a model, not by discipline but because there is no such row.

Why some rows are missing
-------------------------
Whatever ends a turn closes its open round first: requests are resolved, `approvals_settled` moves the session back to
success, each call gets its one result there, and only then comes turn_interrupted or session_terminated. That is why
neither has a row from awaiting_approval: a call without a result can not be written into history.

The package `transitions` holds the rows in one machine without callbacks. `compile_rows` flattens that machine into
`NEXT`, which the live path uses, and refuses what the package would accept in silence: a duplicate row, a name that
is no state, a state that nothing reaches.
"""

from collections.abc import Iterable

from transitions import Machine

from .states import State

SUCCESS, INTERRUPT, ERROR = State.SUCCESS, State.INTERRUPT, State.ERROR
AWAITING, TERMINATED = State.AWAITING_APPROVAL, State.TERMINATED

Arrow = tuple[State, str, State]


def _stay(kind: str, *states: State) -> tuple[Arrow, ...]:
    return tuple((state, kind, state) for state in states)


ROWS: tuple[Arrow, ...] = (
    *_stay("session_started", INTERRUPT),
    (INTERRUPT, "message_added", SUCCESS),
    (SUCCESS, "message_added", SUCCESS),
    (ERROR, "message_added", SUCCESS),
    *_stay("message_queued", SUCCESS, AWAITING, INTERRUPT),
    *_stay("session_resumed", SUCCESS, INTERRUPT, AWAITING),
    *_stay("speaker_selected", SUCCESS),
    *_stay("member_removed", SUCCESS, INTERRUPT, ERROR),
    *_stay("context_fetched", SUCCESS),
    *_stay("tools_called", SUCCESS),
    (SUCCESS, "approval_requested", AWAITING),
    (AWAITING, "approval_requested", AWAITING),
    *_stay("approval_shown", AWAITING),
    *_stay("approval_resolved", SUCCESS, AWAITING),
    (AWAITING, "approvals_settled", SUCCESS),
    (SUCCESS, "question_asked", INTERRUPT),
    (INTERRUPT, "question_answered", SUCCESS),
    *_stay("tool_started", SUCCESS),
    *_stay("tool_returned", SUCCESS),
    (SUCCESS, "turn_interrupted", INTERRUPT),
    (INTERRUPT, "turn_continued", SUCCESS),
    (SUCCESS, "turn_failed", ERROR),
    (ERROR, "turn_retried", SUCCESS),
    *_stay("grant_recorded", SUCCESS, INTERRUPT, ERROR, AWAITING),
    *_stay("grant_revoked", SUCCESS, INTERRUPT, ERROR, AWAITING),
    *_stay("rerun_allowed", SUCCESS, INTERRUPT, ERROR, AWAITING),
    *_stay("input_refused", *State),
    (SUCCESS, "session_terminated", TERMINATED),
    (INTERRUPT, "session_terminated", TERMINATED),
    (ERROR, "session_terminated", TERMINATED),
)


def build(rows: Iterable[Arrow], initial: State = INTERRUPT) -> Machine:
    """One machine of the package `transitions` with these rows: no callbacks, no guards, no automatic triggers."""
    arrows = [{"trigger": kind, "source": str(source), "dest": str(target)} for source, kind, target in rows]
    return Machine(
        model=None,
        states=[str(state) for state in State],
        transitions=arrows,
        initial=str(initial),
        auto_transitions=False,
    )


def compile_rows(machine: Machine) -> dict[tuple[State, str], State]:
    """Flatten a machine to `(state, kind) -> state`.

    Raises:
        ValueError: a row is there twice, a name is no state, or a state cannot be reached.
    """
    table: dict[tuple[State, str], State] = {}
    for kind, event in machine.events.items():
        for source, found in event.transitions.items():
            for transition in found:
                start, end = _state(source, kind), _state(transition.dest, kind)
                if (start, kind) in table:
                    raise ValueError(f"row {start} --{kind}--> is there twice: keep one")
                table[start, kind] = end
    reached, todo = {_state(machine.initial, "initial")}, [_state(machine.initial, "initial")]
    while todo:
        here = todo.pop()
        new = {end for (start, _), end in table.items() if start is here} - reached
        reached |= new
        todo += new
    if missing := set(State) - reached:
        raise ValueError(f"nothing leads to {', '.join(sorted(missing))}: add a row or remove the state")
    return table


def _state(name: object, kind: str) -> State:
    try:
        return State(str(name))
    except ValueError:
        raise ValueError(f"row of {kind} names {name!r}, which is no state: use one of {', '.join(State)}") from None


machine = build(ROWS)
NEXT: dict[tuple[State, str], State] = compile_rows(machine)
