"""Pictures of the machine as text, drawn from the `transitions` machine itself: Mermaid, a Markdown table, SVG.

Nothing here reads or writes a file. `FILES` names what is kept in diagrams/ and how each is made.
"""

from collections.abc import Callable, Collection
from html import escape

from transitions import Machine

from .states import State
from .table import Arrow

Step = tuple[State, str]


def arrows(machine: Machine) -> tuple[Arrow, ...]:
    """Every row of the machine, by source state, then in the order of the table."""
    found = [
        (State(source), kind, State(str(one.dest)))
        for kind, event in machine.events.items()
        for source, several in event.transitions.items()
        for one in several
    ]
    return tuple(arrow for state in State for arrow in found if arrow[0] is state)


def _grouped(machine: Machine) -> dict[tuple[State, State], list[str]]:
    groups: dict[tuple[State, State], list[str]] = {}
    for source, kind, target in arrows(machine):
        groups.setdefault((source, target), []).append(kind)
    return groups


def _final(machine: Machine) -> list[State]:
    """States that nothing leaves."""
    return [state for state in State if all(a is b for a, b in _grouped(machine) if a is state)]


# Mermaid ---------------------------------------------------------------------------------------


def mermaid(machine: Machine) -> str:
    """A Mermaid stateDiagram-v2. What leaves a state as it is stands in a note beside it."""
    return _mermaid(machine, lambda _state, kind: kind)


def coverage(machine: Machine, walked: Collection[Step]) -> str:
    """The same diagram with a mark on each row: `+` some conversation of the tests walked it, `-` none did."""
    steps = [(source, kind) for source, kind, _ in arrows(machine)]
    done = [step for step in steps if step in walked]
    head = f"%% {len(done)} of {len(steps)} rows walked by the conversations of tests/fsm/conversations.py\n"
    bare = sorted({source for source, kind in steps if (source, kind) not in walked})
    marked = _mermaid(machine, lambda state, kind: f"{'+' if (state, kind) in walked else '-'} {kind}")
    if not bare:
        return head + marked
    return f"{head}{marked}    classDef unwalked stroke:#b00020,stroke-width:3px\n    class {','.join(bare)} unwalked\n"


def _mermaid(machine: Machine, label: Callable[[State, str], str]) -> str:
    groups = _grouped(machine)
    lines = ["stateDiagram-v2", f"    [*] --> {machine.initial}"]
    for (source, target), kinds in groups.items():
        if source is not target:
            words = "<br/>".join(label(source, kind) for kind in kinds)
            lines.append(f"    {source} --> {target} : {words}")
    lines += [f"    {state} --> [*]" for state in _final(machine)]
    for state in State:
        if (state, state) in groups:
            lines.append(f"    note left of {state}")
            lines += [f"        {label(state, kind)}" for kind in groups[state, state]]
            lines.append("    end note")
    return "\n".join(lines) + "\n"


# Markdown --------------------------------------------------------------------------------------


def markdown(machine: Machine) -> str:
    """A table of kinds and states: the cell is the next state, `stays` when it is the same, empty when refused."""
    table = {(source, kind): target for source, kind, target in arrows(machine)}
    lines = ["| event kind | " + " | ".join(State) + " |", "|---|" + "---|" * len(State)]
    for kind in machine.events:
        cells = []
        for state in State:
            target = table.get((state, kind))
            cells.append("" if target is None else "stays" if target is state else f"to {target}")
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


# SVG -------------------------------------------------------------------------------------------

# Where each state stands: column and row of a grid. Lengths are in user units of the picture.
PLACES = {
    State.INTERRUPT: (0, 0),
    State.SUCCESS: (1, 0),
    State.AWAITING_APPROVAL: (2, 0),
    State.TERMINATED: (0, 1),
    State.ERROR: (1, 1),
}
WIDTH, GAP, MARGIN = 200, 190, 30
HEAD, LINE, PAD = 34, 16, 12
ROW_GAP = 120
APART = 26  # how far the two arrows of a pair of states keep from each other
INK, PAPER, FILL, SOFT = "#1f2933", "#ffffff", "#f1f5f9", "#52606d"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
SANS = "system-ui, Segoe UI, Roboto, Helvetica, Arial, sans-serif"

Box = tuple[float, float, float, float]


def svg(machine: Machine) -> str:
    """One SVG without script or style sheet. A state is the group `state-<name>`, an arrow `arrow-<from>-<to>`.

    Kinds that leave a state as it is are listed inside its box.
    """
    groups = _grouped(machine)
    boxes, width, height = _boxes(groups)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" role="img" '
            f'aria-labelledby="machine-title" font-size="12">'
        ),
        '<title id="machine-title">The states of a session and the events that move it</title>',
        (
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
            f'orient="auto"><path d="M0 0 L10 5 L0 10 Z" fill="{INK}"/></marker></defs>'
        ),
        f'<rect class="paper" width="{_n(width)}" height="{_n(height)}" fill="{PAPER}"/>',
        *_entry(boxes[State(str(machine.initial))]),
    ]
    for source, target in groups:
        if source is not target:
            parts += _arrow(boxes, source, target, groups)
    final = _final(machine)
    for state, box in boxes.items():
        parts += _state(state, box, groups.get((state, state), []), final=state in final)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _boxes(groups: dict[tuple[State, State], list[str]]) -> tuple[dict[State, Box], float, float]:
    heights = {state: HEAD + LINE * len(groups.get((state, state), [])) + PAD for state in State}
    rows = sorted({row for _, row in PLACES.values()})
    tall = {row: max(heights[state] for state, (_, at) in PLACES.items() if at == row) for row in rows}
    boxes: dict[State, Box] = {}
    for state, (column, row) in PLACES.items():
        top = MARGIN + sum(tall[above] + ROW_GAP for above in rows if above < row)
        # The boxes of the first row end on one line, so that what leads down starts there.
        down = tall[row] - heights[state] if row == 0 else 0
        boxes[state] = (MARGIN + PAD + column * (WIDTH + GAP), top + down, WIDTH, heights[state])
    width = 2 * (MARGIN + PAD) + max(column for column, _ in PLACES.values()) * (WIDTH + GAP) + WIDTH
    height = 2 * MARGIN + sum(tall.values()) + ROW_GAP * (len(rows) - 1)
    return boxes, width, height


def _state(state: State, box: Box, kinds: list[str], *, final: bool) -> list[str]:
    x, y, wide, high = box
    frame = f'fill="{FILL}" stroke="{INK}" stroke-width="1.5"'
    lines = [f'<g id="state-{state}" class="state">']
    if final:
        lines.append(
            f'<rect x="{_n(x - 4)}" y="{_n(y - 4)}" width="{_n(wide + 8)}" height="{_n(high + 8)}" rx="13" '
            f'fill="none" stroke="{INK}"/>'
        )
    lines += [
        f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(wide)}" height="{_n(high)}" rx="10" {frame}/>',
        (
            f'<text x="{_n(x + wide / 2)}" y="{_n(y + 22)}" text-anchor="middle" font-family="{SANS}" font-size="15" '
            f'font-weight="bold" fill="{INK}">{escape(state)}</text>'
        ),
    ]
    lines += [
        f'<text x="{_n(x + PAD)}" y="{_n(y + HEAD + LINE * (place + 1) - 4)}" font-family="{MONO}" '
        f'fill="{SOFT}">{escape(kind)}</text>'
        for place, kind in enumerate(kinds)
    ]
    return [*lines, "</g>"]


def _arrow(
    boxes: dict[State, Box], source: State, target: State, groups: dict[tuple[State, State], list[str]]
) -> list[str]:
    start, end, (dx, dy) = _line(boxes[source], boxes[target], apart=APART if (target, source) in groups else 0)
    kinds = groups[source, target]
    along = 0.75 if dx and dy else 0.5  # a slanted line has more room near its end
    x, y = (a + (b - a) * along for a, b in zip(start, end, strict=True))
    if not dy:  # the words stand over a line to the right, under a line to the left
        anchor, y = "middle", y - 8 - LINE * (len(kinds) - 1) if dx > 0 else y + LINE + 2
    else:  # right of a line down, left of a line up
        anchor, x = ("start", x + 10) if dy > 0 else ("end", x - 10)
        y += 4 - LINE * (len(kinds) - 1) / 2 + (8 if dx else 0)
    lines = [
        f'<g id="arrow-{source}-{target}" class="arrow">',
        (
            f'<line x1="{_n(start[0])}" y1="{_n(start[1])}" x2="{_n(end[0])}" y2="{_n(end[1])}" stroke="{INK}" '
            'stroke-width="1.5" marker-end="url(#tip)"/>'
        ),
    ]
    lines += [
        f'<text x="{_n(x)}" y="{_n(y + LINE * place)}" text-anchor="{anchor}" font-family="{MONO}" '
        f'fill="{INK}">{escape(kind)}</text>'
        for place, kind in enumerate(kinds)
    ]
    return [*lines, "</g>"]


Point = tuple[float, float]


def _line(source: Box, target: Box, apart: float) -> tuple[Point, Point, Point]:
    """Where an arrow starts and ends, and its direction: level, upright, or slanted from corner to corner."""
    (ax, ay, aw, ah), (bx, by, bw, bh) = source, target
    if ax == bx:
        side = 1 if by > ay else -1
        x = ax + aw / 2 + side * apart
        return (x, ay + ah if side > 0 else ay), (x, by if side > 0 else by + bh), (0, side)
    if ay < by + bh and by < ay + ah:
        side = 1 if bx > ax else -1
        low, high = max(ay, by), min(ay + ah, by + bh)
        y = (low + high) / 2 - side * apart
        return (ax + aw if side > 0 else ax, y), (bx if side > 0 else bx + bw, y), (side, 0)
    right, down = bx > ax, by > ay
    start = (ax + aw - 24 if right else ax + 24, ay + ah if down else ay)
    end = (bx + 24 if right else bx + bw - 24, by if down else by + bh)
    return start, end, (1 if right else -1, 1 if down else -1)


def _entry(box: Box) -> list[str]:
    """The mark of the initial state."""
    x, y = box[0] + 24, box[1] - 24
    return [
        (
            f'<g id="entry"><circle cx="{_n(x)}" cy="{_n(y)}" r="5" fill="{INK}"/>'
            f'<line x1="{_n(x)}" y1="{_n(y)}" x2="{_n(x)}" y2="{_n(box[1])}" stroke="{INK}" stroke-width="1.5" '
            'marker-end="url(#tip)"/></g>'
        )
    ]


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


FILES: dict[str, Callable[[Machine], str]] = {"session.mmd": mermaid, "session.svg": svg, "table.md": markdown}
