"""`turnlog replay` and `turnlog sessions`."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.recorded import balance, pay, remind
from turnlog.engine.models.scripted import ScriptedModel
from turnlog.fsm.session import SnapshotOf, replay
from turnlog.store import LogReader


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was run by mistake."""
    ran: list[str] = []
    monkeypatch.setattr(ScriptedModel, "stream", lambda *_: ran.append("model"))
    for one in (balance, pay, remind):
        monkeypatch.setattr(type(one), "values", lambda *_: ran.append("tool"))
    return ran


@pytest.mark.accept(67)
def test_a_replay_to_any_row_rebuilds_the_state_and_runs_nothing(
    run: Run, recorded: Path, nothing_runs: list[str]
) -> None:
    before = recorded.read_bytes()
    reader = LogReader(recorded)
    for session in reader.session_ids():
        rows = reader.read(session)
        for row in rows:
            told = run("replay", session, "--to", row.seq, "--db", recorded, "--json").json
            live = replay(rows[: row.seq])
            assert list(told["session"].values()) == SnapshotOf.dump_python(live, mode="json")
            assert list(told["session"]) == list(live._fields)
            assert told["session"]["state"] == row.state
            assert [one["seq"] for one in told["rows"]] == list(range(1, row.seq + 1))
            assert told["rows"][-1]["hash"] == row.hash.hex()
    reader.close()
    assert nothing_runs == []
    assert recorded.read_bytes() == before


def test_a_replay_stops_where_it_is_told_and_names_what_was_open_then(run: Run, recorded: Path) -> None:
    out = run("replay", "edited", "--to", 8, "--db", recorded).out
    rows, standing = out.split("\n\n")
    assert len(rows.splitlines()) == 8
    assert standing.splitlines()[0] == "session edited at seq 8: awaiting_approval"
    assert 'open request r7: pay {"amount": 5, "to": "Ann"} [9d8ab04e1714], until 2030-01-01T00:02:01.000Z' in standing
    assert "open request r8" in standing
    assert 'open call call5: pay {"amount": 5, "to": "Ann"}, waiting' in standing


def test_a_replay_past_the_end_is_an_error_that_says_where_the_end_is(run: Run, recorded: Path) -> None:
    last = len(run("replay", "edited", "--db", recorded, "--json").json["rows"])
    assert run("replay", "edited", "--to", last, "--db", recorded) == run("replay", "edited", "--db", recorded)
    told = run("replay", "edited", "--to", last + 1, "--db", recorded)
    assert (told.code, told.out) == (2, "")
    assert f"session 'edited' ends at seq {last}" in told.err


@pytest.mark.parametrize(
    ("argv", "wrong"),
    [
        (("--as", "@agent"), "--as: it needs --history"),
        (("--as", "@agent", "--from", "USER"), "--as: it needs --history"),
        (("--history", "--from", "USER"), "--history: it does not go with --from and --to-node"),
        (("--history", "--to-node", "USER"), "--history: it does not go with --from and --to-node"),
    ],
)
def test_an_option_that_would_do_nothing_is_an_error_and_not_ignored(
    run: Run, recorded: Path, argv: tuple[str, ...], wrong: str
) -> None:
    told = run("replay", "edited", *argv, "--db", recorded)
    assert (told.code, told.out) == (2, "")
    assert wrong in told.err


def test_the_history_is_what_a_model_would_see_and_holds_no_placeholder(run: Run, recorded: Path) -> None:
    told = run("replay", "edited", "--history", "--db", recorded, "--json").json
    assert (told["speaker"], told["listener"]) == ("@agent", "USER")
    assert [one["type"] for one in told["messages"]] == [
        "UserMessage", "AssistantMessage", "ToolMessage", "AssistantMessage", "ToolMessage", "ToolMessage",
        "AssistantMessage",
    ]  # fmt: skip
    assert [one["outcome"] for one in told["messages"] if one["type"] == "ToolMessage"] == ["ok", "ok", "denied"]
    out = run("replay", "edited", "--history", "--to", 8, "--db", recorded).out
    assert out.splitlines()[-1] == "tool balance (ok): main: 100"


def test_a_history_of_a_node_that_is_not_there_is_an_error(run: Run, recorded: Path) -> None:
    told = run("replay", "edited", "--history", "--as", "@nobody", "--db", recorded)
    assert told.code == 1
    assert "no node '@nobody' in session 'edited': use one of 'USER', '@agent'" in told.err


@pytest.mark.accept(41)
@pytest.mark.parametrize(
    ("pair", "seqs"),
    [
        (("--from", "USER", "--to-node", "@agent"), [2, 18]),
        (("--from", "@agent", "--to-node", "USER"), [2, 18]),
        (("--from", "USER"), [2]),
        (("--to-node", "USER"), [18]),
        (("--from", "@nobody"), []),
    ],
)
def test_messages_of_a_pair_go_both_ways_and_of_one_node_one_way(
    run: Run, recorded: Path, pair: tuple[str, ...], seqs: list[int]
) -> None:
    told = run("replay", "edited", *pair, "--db", recorded, "--json").json
    assert [one["seq"] for one in told] == seqs
    assert len(run("replay", "edited", *pair, "--db", recorded).out.splitlines()) == len(seqs)


@pytest.mark.accept(41)
def test_messages_of_a_pair_are_rows_in_success_only(run: Run, recorded: Path) -> None:
    told = run("replay", "broken", "--from", "USER", "--to-node", "@agent", "--db", recorded, "--json").json
    assert [one["text"] for one in told] == ["What is there?"]


@pytest.mark.accept(38)
def test_agents_functions_and_chats_can_be_inspected(run: Run, recorded: Path) -> None:
    told = run("replay", "edited", "--db", recorded, "--json").json
    agents = told["session"]["agents"]
    assert agents["@agent"]["tools"] == ["balance", "pay", "remind"]
    assert agents["@agent"]["role"] == "You keep the books."
    assert agents["USER"]["interrupt"] == "always"
    assert told["session"]["channels"] == {}
    assert [one["event"]["text"] for one in told["rows"] if one["event"]["kind"] == "message_added"] == [
        "Pay them", "Ann has 4.",
    ]  # fmt: skip


@pytest.mark.accept(38)
def test_sessions_are_listed_with_state_and_owner(run: Run, recorded: Path) -> None:
    listed = {one["id"]: one for one in run("sessions", "--db", recorded, "--json").json}
    assert len(listed) == 9
    assert (listed["broken"]["state"], listed["edited"]["state"]) == ("error", "interrupt")
    assert {one["owner"] for one in listed.values()} == {"ann"}
    assert len(run("sessions", "--db", recorded).out.splitlines()) == 10
