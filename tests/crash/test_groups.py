"""A process dies between a director's choice and the words of the one it chose."""

from pathlib import Path

import pytest

from tests.crash.child import Kill
from tests.crash.harness import Case, Nurseries, of_kind, story


def choices(case: Case) -> list[tuple[str, str]]:
    """Who was chosen, and by whom."""
    return [(e.speaker, e.by) for e in of_kind(case.rows(), "speaker_selected")]


def asked(case: Case) -> int:
    """How often the director was asked, in all lives."""
    return sum(name == "director" for _, name, _ in case.effects())


@pytest.mark.accept(59)
@pytest.mark.parametrize(
    ("kill", "again"),
    [
        (Kill("append", 1, "after", "speaker_selected"), 0),
        (Kill("append", 3, "after", "speaker_selected"), 0),
        (Kill("append", 2, "before", "speaker_selected"), 1),  # nothing was written: it has to be asked again
        (Kill("model", 1), 0),
        (Kill("model", 4), 0),
        (Kill("tool", 2, "before", "look"), 0),
        (Kill("tool", 2, "after", "look"), 0),
        (Kill("append", 2, "after", "tools_called"), 0),
        (Kill("append", 2, "after", "tool_returned"), 0),
    ],
    ids=str,
)
def test_a_chosen_speaker_is_kept_over_a_kill_and_the_director_is_not_asked_twice(
    tmp_path: Path, nurseries: Nurseries, kill: Kill, again: int
) -> None:
    normal = Case(tmp_path / "undisturbed", nurseries, "group")
    normal.finished()
    assert [by for _, by in choices(normal)] == ["director"] * 4
    case = Case(tmp_path / "killed", nurseries, "group")
    case.killed(kill)
    before = choices(case)
    case.finished(word="again")
    case.sound()
    case.sparing()
    assert choices(case)[: len(before)] == before
    assert story(case.rows()) == story(normal.rows())
    assert asked(case) == asked(normal) + again == 4 + again
