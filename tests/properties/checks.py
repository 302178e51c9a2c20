"""The invariants of the design as functions of a world: each reads the log and what happened outside, and asserts."""

from collections.abc import Iterator
from hashlib import sha256
from typing import TypeVar

from tests.fsm.validity import complaints
from turnlog.fsm import Row, Session, State, pending, replay
from turnlog.fsm import events as ev
from turnlog.fsm import inputs as inp
from turnlog.fsm.canonical import digest
from turnlog.fsm.history import collect, view
from turnlog.fsm.session import SnapshotOf

from .world import World

V = TypeVar("V", bound=ev.EventBase)
NEW = Session(id="s")


def link(mark: bytes, row: Row) -> bytes:
    """The next link of the chain, as the log in memory makes it."""
    text = f"{row.seq}|{row.state}|{row.at}|{row.actor}|{row.event.model_dump_json()}"
    return sha256(mark + text.encode()).digest()


def of(world: World, kind: type[V]) -> Iterator[tuple[Row, V]]:
    """The rows of one kind with their events."""
    return ((row, row.event) for row in world.log.rows if isinstance(row.event, kind))


def calls(world: World) -> dict[str, ev.CallRecord]:
    """Every call that was ever made, by id."""
    return {call.id: call for _, called in of(world, ev.ToolsCalled) for call in called.calls}


def invariant_01_the_log_is_the_only_truth(world: World) -> None:
    """State and what is owed are folds of the log, and a snapshot at any place leads to the same."""
    rows, live = world.log.rows, world.owner.session
    folded = replay(rows, NEW)
    assert folded == live
    assert pending(folded) == pending(live)
    half = replay(rows[: len(rows) // 2], NEW)
    assert replay(rows[len(rows) // 2 :], SnapshotOf.validate_json(SnapshotOf.dump_json(half))) == live


def invariant_02_a_row_is_there_before_anyone_hears_and_before_what_it_permits(world: World) -> None:
    """What was heard is in the log; each effect began after the row of its start."""
    assert all(world.log.rows[row.seq - 1] == row for row in world.heard)
    starts = {(event.call_id, event.attempt): row.seq for row, event in of(world, ev.ToolStarted)}
    for effect in world.ledger:
        assert starts[effect.call_id, effect.attempt] <= effect.head


def invariant_03_seq_is_contiguous_and_order_is_seq(world: World) -> None:
    """Seqs count from 1; what is heard comes in that order; only the newest owner's epochs grow."""
    assert [row.seq for row in world.log.rows] == list(range(1, len(world.log.rows) + 1))
    seqs = [row.seq for row in world.heard]
    assert seqs == sorted(set(seqs))
    epochs = [event.epoch for _, event in of(world, ev.SessionResumed)]
    assert epochs == sorted(set(epochs))


def invariant_04_history_is_valid(world: World) -> None:
    """Whoever looks sees a history that each provider takes."""
    session, history = world.owner.session, collect([], world.log.rows)
    for speaker in session.agents:
        for listener in (*session.agents, *session.channels):
            if speaker != listener:
                group = session.channels.get(listener)
                assert complaints(view(history, speaker, listener, group.members if group else ())) == []


def invariant_05_a_call_starts_again_only_at_a_persons_word_or_if_idempotent_throughout(world: World) -> None:
    """No attempt acts twice; a further attempt needs a word, or a tool that was idempotent then and is now."""
    acts = [(one.call_id, one.attempt) for one in world.ledger]
    assert len(acts) == len(set(acts))
    unknown = {event.request_id for _, event in of(world, ev.ApprovalRequested) if event.why == "outcome_unknown"}
    words = [
        (row.seq, event.call_id)
        for row, event in of(world, ev.ApprovalResolved)
        if event.request_id in unknown and event.outcome == "approved" and event.via == "person"
    ]
    earlier: dict[str, tuple[int, ev.ToolStarted]] = {}
    for row, event in of(world, ev.ToolStarted):
        if event.call_id in earlier:
            at, before = earlier[event.call_id]
            assert event.attempt == before.attempt + 1
            assert event.key == before.key
            asked = any(at < seq < row.seq and call_id == event.call_id for seq, call_id in words)
            assert asked or (calls(world)[event.call_id].idempotent and before.idempotent and event.idempotent)
        else:
            assert event.attempt == 1
        earlier[event.call_id] = row.seq, event


def invariant_06_a_tool_runs_with_the_arguments_that_were_approved(world: World) -> None:
    """The digest of what ran is that of the start, which is that of the last approval, or of the free call."""
    made = calls(world)
    starts = {(event.call_id, event.attempt): event for _, event in of(world, ev.ToolStarted)}
    allowed = {call.id: call.digest for call in made.values()}
    for _, event in of(world, ev.ApprovalResolved):
        if event.outcome == "approved":
            allowed[event.call_id] = event.digest
            if event.arguments is not None:
                assert digest(event.arguments) == event.digest
    for call in made.values():
        assert call.parsed is None or not call.digest or digest(call.parsed) == call.digest
    for effect in world.ledger:
        assert effect.mark == starts[effect.call_id, effect.attempt].digest == allowed[effect.call_id]


def invariant_07_only_a_person_a_grant_the_policy_or_the_timer_decides(world: World) -> None:
    """Each decision names who made it, and that one did; nothing starts without one, unless it needs none."""
    requests = {event.request_id: event for _, event in of(world, ev.ApprovalRequested)}
    resolved = {event.request_id: event for _, event in of(world, ev.ApprovalResolved)}
    for row, event in of(world, ev.ApprovalResolved):
        match event.via:
            case "person":
                assert row.actor == event.actor
                assert event.actor.removeprefix("person:") not in ("", event.actor)
                assert event.outcome == "cancelled" or _said(world, requests[event.request_id], event)
            case "grant":
                assert _granted(world, row, event)
            case "timer":
                assert (event.outcome, row.actor, event.actor) == ("expired", "timer", "timer")
            case "env":
                assert event.rule == "all"
                assert row.actor not in ("", "timer")
            case _:
                raise AssertionError(event.via)
    for _, start in of(world, ev.ToolStarted):
        if start.permit == "free":
            assert not calls(world)[start.call_id].gated
        else:
            word = resolved[start.permit]
            assert (word.outcome, word.call_id, word.digest) == ("approved", start.call_id, start.digest)


def _said(world: World, request: ev.ApprovalRequested, event: ev.ApprovalResolved) -> bool:
    """Whether that person did send that word on that request with the digest of what was shown."""
    return any(
        isinstance(sent.given, inp.Decide)
        and (sent.given.actor, sent.given.request_id, sent.given.digest, sent.given.outcome)
        == (event.actor, request.request_id, request.digest, event.outcome)
        for sent in world.sent
    )


def _granted(world: World, row: Row, event: ev.ApprovalResolved) -> bool:
    """Whether a person's grant covered that call then."""
    for at, grant in of(world, ev.GrantRecorded):
        if grant.grant_id == event.rule and at.seq < row.seq and at.actor.startswith("person:"):
            revoked = [one.seq for one, gone in of(world, ev.GrantRevoked) if gone.grant_id == grant.grant_id]
            used = [one for one in of(world, ev.ApprovalResolved) if one[1].rule == grant.grant_id]
            return (
                grant.tool == event.tool
                and grant.match in ("", event.digest)
                and not any(seq < row.seq for seq in revoked)
                and (grant.expires_at is None or row.at < grant.expires_at)
                and (grant.max_uses is None or len(used) <= grant.max_uses)
                and event.outcome == "approved"
            )
    return False


def invariant_08_losing_words_are_rows_too(world: World) -> None:
    """Each command that reached the log left rows there; a refused one left exactly one that says so."""
    for sent in world.sent:
        if sent.rows is None or isinstance(sent.given, inp.Show):
            continue
        assert sent.rows
        assert {row.command_id for row in sent.rows} == {sent.id}
        refused = [row for row in sent.rows if row.event.kind == "input_refused"]
        assert len(refused) == (sent.refusal is not None or isinstance(sent.given, inp.Refuse))
        if isinstance(sent.given, inp.Decide) and sent.refusal is None:
            words = [row.event for row in sent.rows if isinstance(row.event, ev.ApprovalResolved)]
            assert [one.via for one in words if one.request_id == sent.given.request_id] == ["person"]
        if refused:
            assert len(sent.rows) == 1
            assert refused[0].actor == sent.given.actor


def invariant_09_a_refusal_changes_nothing_and_nothing_is_lost(world: World) -> None:
    """A refusal says what was wrong and moves only seq; a message that was taken is said, waits, or met the end."""
    for before, after in world.refusals:
        assert after._replace(seq=before.seq) == before
    for _, refused in of(world, ev.InputRefused):
        assert refused.why
    session = world.owner.session
    taken = [event.message_id for _, event in of(world, ev.MessageQueued)]
    said = [event.message_id for _, event in of(world, ev.MessageAdded)]
    waiting = [one.message_id for one in session.queue]
    for message_id in set(taken):
        if session.state is not State.TERMINATED:
            assert said.count(message_id) + waiting.count(message_id) >= taken.count(message_id)


def invariant_10_replay_ends_where_the_live_session_was(world: World) -> None:
    """At any seq the replay is what the session was then; replaying makes no row; the chain of hashes holds."""
    rows = world.log.rows
    count = len(rows)
    for seq in {1, count // 2, count - 1, count} - {0}:
        again = replay(rows, NEW, to=seq)
        assert again == world.live[seq]
        assert again.state is rows[seq - 1].state
    assert len(rows) == count
    mark = b""
    for row in rows:
        mark = link(mark, row)
        assert row.hash == mark


def nothing_happens_twice(world: World) -> None:
    """One result for each call, one resolution for each request, nothing but refusals behind the end."""
    returned = [event.call_id for _, event in of(world, ev.ToolReturned)]
    resolved = [event.request_id for _, event in of(world, ev.ApprovalResolved)]
    assert len(returned) == len(set(returned))
    assert len(resolved) == len(set(resolved))
    assert set(returned) <= set(calls(world))
    ends = [row.seq for row, _ in of(world, ev.SessionTerminated)]
    assert len(ends) <= 1
    if ends:
        assert {row.event.kind for row in world.log.rows[ends[0] :]} <= {"input_refused"}


INVARIANTS = (
    invariant_01_the_log_is_the_only_truth,
    invariant_02_a_row_is_there_before_anyone_hears_and_before_what_it_permits,
    invariant_03_seq_is_contiguous_and_order_is_seq,
    invariant_04_history_is_valid,
    invariant_05_a_call_starts_again_only_at_a_persons_word_or_if_idempotent_throughout,
    invariant_06_a_tool_runs_with_the_arguments_that_were_approved,
    invariant_07_only_a_person_a_grant_the_policy_or_the_timer_decides,
    invariant_08_losing_words_are_rows_too,
    invariant_09_a_refusal_changes_nothing_and_nothing_is_lost,
    invariant_10_replay_ends_where_the_live_session_was,
    nothing_happens_twice,
)
