"""`turnlog audit`."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from turnlog.cli.text import wrapped
from turnlog.fsm.canonical import digest


def requests(run: Run, db: Path, *more: str) -> dict[str, Any]:
    """Every request of the recorded log, by session and place."""
    parts = run("audit", *more, "--db", db, "--json").json
    return {f"{part['session']}.{at}": one for part in parts for at, one in enumerate(part["requests"])}


@pytest.mark.accept(66)
@pytest.mark.field(133)
@pytest.mark.parametrize(
    ("place", "outcome", "via", "actor", "rule", "result"),
    [
        ("edited.0", "approved", "person", "person:ann", "", "ok"),
        ("edited.1", "denied", "person", "person:ann", "", "denied"),
        ("expired.0", "expired", "timer", "timer", "", "expired"),
        ("stopped.0", "cancelled", "person", "person:ann", "", "cancelled"),
        ("configured.0", "approved", "env", "env", "rem*", "ok"),
        ("granted.0", "approved", "grant", "ann", "g34", "ok"),
        ("remembered.1", "approved", "grant", "person:ann", "g46", "ok"),
        ("failing.0", "approved", "person", "person:ann", "", "error"),
    ],
)
def test_one_query_tells_for_every_request_who_or_what_settled_it_and_what_came_of_it(
    run: Run, recorded: Path, place: str, outcome: str, via: str, actor: str, rule: str, result: str
) -> None:
    found = requests(run, recorded)[place]
    assert (found["outcome"], found["via"], found["actor"], found["rule"]) == (outcome, via, actor, rule)
    assert found["result"] == result
    assert found["asked_at"] <= found["resolved_at"] <= found["returned_at"]
    assert found["digest"] == digest(found["arguments"])
    ran = found["arguments"] if found["edited"] is None else found["edited"]
    assert found["ran_digest"] == (digest(ran) if outcome == "approved" else "")
    assert len(found["runs"]) == (outcome == "approved")


def test_every_request_of_the_log_is_told_of_once(run: Run, recorded: Path) -> None:
    assert len(requests(run, recorded)) == 10


def test_an_edited_request_shows_both_arguments_and_that_the_edited_ones_ran(run: Run, recorded: Path) -> None:
    found = requests(run, recorded)["edited.0"]
    assert (found["arguments"], found["edited"]) == ({"amount": 5, "to": "Ann"}, {"amount": 4, "to": "Ann"})
    assert found["ran_digest"] == found["approved_digest"] != found["digest"]


@pytest.mark.field(133)
def test_late_second_and_mistaken_words_are_told_with_the_request_that_they_were_about(
    run: Run, recorded: Path
) -> None:
    found = requests(run, recorded)
    assert [one["code"] for one in found["edited.0"]["tries"]] == ["conflict"]
    assert [(one["actor"], one["code"]) for one in found["edited.1"]["tries"]] == [("person:eve", "conflict")]
    assert [one["code"] for one in found["expired.0"]["tries"]] == ["expired"]


def test_a_word_on_a_guessed_request_is_told_too(run: Run, recorded: Path) -> None:
    (part,) = run("audit", "edited", "--db", recorded, "--json").json
    assert [(one["about"], one["actor"]) for one in part["strays"]] == [("r_guessed", "person:eve")]
    assert "r_guessed" in run("audit", "edited", "--db", recorded).out


def test_a_grant_is_told_with_who_gave_it(run: Run, recorded: Path) -> None:
    assert requests(run, recorded)["granted.0"]["granted_by"] == "person:ann"


def test_a_request_is_a_block_with_a_line_for_each_thing_that_became_of_it(
    run: Run, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    first, second, *_ = run("audit", "edited", "--db", recorded).out.split("\n\n")
    assert first.splitlines() == [
        "r7 in edited, asked at 2030-01-01T00:00:01.000Z",
        '  pay {"amount": 5, "to": "Ann"} [9d8ab04e1714]',
        "  approved via person by person:ann at 2030-01-01T00:00:02.000Z",
        '  edited to {"amount": 4, "to": "Ann"} [8d8e43ec19c7]',
        "  ran at 2030-01-01T00:00:03.000Z with [8d8e43ec19c7]: ok",
        '  refused at 2030-01-01T00:00:02.000Z to person:eve (conflict): "already',
        '      approved by person:ann at 2030-01-01 00:00:02 UTC: nothing was changed"',
    ]
    assert 'because "too much"' in second
    assert "  did not run: denied" in second.splitlines()


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(
    run: Run, recorded: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = run("audit", "--all", "--db", recorded).out.splitlines()
    assert max(map(len, lines)) in range(width - 10, width + 1)


def test_a_wide_character_takes_two_columns_and_a_long_word_comes_in_parts() -> None:
    assert list(wrapped("日本語 日本語 " + "x" * 9, 8, "  ")) == ["日本語", "  日本語", "  xxxxxx", "  xxx"]


def test_the_json_does_not_depend_on_the_terminal(run: Run, recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = run("audit", "--db", recorded, "--json")
    monkeypatch.setenv("COLUMNS", "40")
    assert run("audit", "--db", recorded, "--json") == told


def test_calls_that_need_no_approval_are_told_when_asked_for(run: Run, recorded: Path) -> None:
    assert "balance" not in run("audit", "edited", "--db", recorded).out
    assert "balance" in run("audit", "edited", "--all", "--db", recorded).out
    assert [one["via"] for one in requests(run, recorded, "edited", "--all").values()] == ["free", "person", "person"]


def test_an_unknown_session_is_an_error_with_the_next_step(run: Run, recorded: Path) -> None:
    told = run("audit", "nope", "--db", recorded)
    assert (told.code, told.out) == (1, "")
    assert told.err == f"turnlog: no session has the id 'nope': `turnlog sessions --db {recorded}` lists them\n"
