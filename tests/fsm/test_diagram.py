"""The pictures in diagrams/ are those of the machine as it is, byte for byte."""

import re
from xml.etree import ElementTree as ET

import pytest

from turnlog.fsm import NEXT, ROWS, State
from turnlog.fsm.diagram import coverage, markdown, mermaid, svg
from turnlog.fsm.table import build, machine

from .write_diagrams import COMMAND, FOLDER, drawn

SVG = "{http://www.w3.org/2000/svg}"
CHANGED = build([*(row for row in ROWS if row[1] != "turn_retried"), (State.ERROR, "turn_forgiven", State.INTERRUPT)])


@pytest.mark.accept(63)
@pytest.mark.parametrize("name", ["session.mmd", "session.svg", "table.md", "coverage.mmd"])
def test_the_committed_diagram_is_what_the_machine_gives(name: str) -> None:
    path = FOLDER / name
    kept = path.read_bytes() if path.exists() else b""
    assert kept == drawn()[name].encode(), f"diagrams/{name} is not what the code gives; write it anew: {COMMAND}"


def test_no_diagram_is_kept_that_nothing_draws() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(drawn())


@pytest.mark.parametrize("draw", [mermaid, markdown, svg])
def test_a_changed_row_changes_every_diagram(draw: object) -> None:
    assert callable(draw)
    assert draw(machine) == draw(build(ROWS))
    assert draw(machine) != draw(CHANGED)
    assert "turn_forgiven" in draw(CHANGED)


def rows_of_mermaid(text: str) -> set[tuple[str, str, str]]:
    """The rows that a Mermaid text shows: arrows, and what stands in the note beside a state."""
    rows: set[tuple[str, str, str]] = set()
    for source, target, kinds in re.findall(r"^    (\w+) --> (\w+) : (.*)$", text, re.MULTILINE):
        rows |= {(source, kind, target) for kind in kinds.split("<br/>")}
    for state, kinds in re.findall(r"^    note left of (\w+)\n(.*?)    end note$", text, re.MULTILINE | re.DOTALL):
        rows |= {(state, kind, state) for kind in kinds.split()}
    return rows


@pytest.mark.accept(63)
def test_the_mermaid_diagram_shows_every_row_and_no_other() -> None:
    assert rows_of_mermaid(mermaid(machine)) == {(str(a), kind, str(b)) for (a, kind), b in NEXT.items()}
    assert "    [*] --> interrupt\n" in mermaid(machine)
    assert re.findall(r"(\w+) --> \[\*\]", mermaid(machine)) == ["terminated"]


def test_the_markdown_table_shows_every_cell() -> None:
    head, _, *lines = markdown(machine).splitlines()
    states = [cell.strip() for cell in head.strip("|").split("|")][1:]
    rows = {}
    for line in lines:
        kind, *cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        for state, cell in zip(states, cells, strict=True):
            if cell:
                rows[state, kind] = state if cell == "stays" else cell.removeprefix("to ")
    assert rows == {(str(state), kind): str(target) for (state, kind), target in NEXT.items()}


def test_the_svg_has_a_group_for_each_state_and_arrow_and_no_script() -> None:
    root = ET.fromstring(svg(machine))
    groups = {group.get("id"): [text.text for text in group.iter(f"{SVG}text")] for group in root.iter(f"{SVG}g")}
    for state in State:
        title, *stays = groups.pop(f"state-{state}")
        assert title == state
        assert set(stays) == {kind for (start, kind), end in NEXT.items() if start is end is state}
    groups.pop("entry")
    moves: dict[str | None, set[str]] = {}
    for (start, kind), end in NEXT.items():
        if start is not end:
            moves.setdefault(f"arrow-{start}-{end}", set()).add(kind)
    assert {name: set(texts) for name, texts in groups.items()} == moves
    assert not [one for one in root.iter() if one.tag.removeprefix(SVG) in {"script", "style", "foreignObject"}]
    assert "href" not in svg(machine)


def test_the_svg_has_boxes_that_keep_apart_and_inside_the_picture() -> None:
    root = ET.fromstring(svg(machine))
    _, _, width, height = (float(part) for part in root.attrib["viewBox"].split())
    boxes = []
    for group in root.iter(f"{SVG}g"):
        if group.get("class") == "state":
            rect = list(group.iter(f"{SVG}rect"))[-1]
            boxes.append([float(rect.attrib[name]) for name in ("x", "y", "width", "height")])
    assert len(boxes) == len(State)
    for at, (x, y, wide, high) in enumerate(boxes):
        assert x >= 0
        assert y >= 0
        assert x + wide <= width
        assert y + high <= height
        for other in boxes[at + 1 :]:
            assert x + wide < other[0] or other[0] + other[2] < x or y + high < other[1] or other[1] + other[3] < y


def test_a_row_that_nobody_walked_is_painted_as_such() -> None:
    walked = set(NEXT) - {(State.ERROR, "turn_retried")}
    text = coverage(machine, walked)
    assert text.startswith(f"%% {len(NEXT) - 1} of {len(NEXT)} rows walked")
    assert "- turn_retried" in text
    assert "    class error unwalked\n" in text
    assert "unwalked" not in coverage(machine, set(NEXT))
