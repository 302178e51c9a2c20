"""A real model of 135 million parameters picks tools through `Untooled`: twelve questions, five tools.

`make test-local-model ARGS='-k untooled -s'` prints the figure.
"""

import json
from pathlib import Path

import pytest

from tests.fakes import Ids
from tests.local_model.server import local_server
from tests.local_model.tools import QUESTIONS, Desk
from turnlog import Engine
from turnlog.engine.models.pydantic_ai import open_model
from turnlog.engine.models.untooled import RETRIES, Untooled
from turnlog.fsm.events import Limits, MessageAdded, Row, ToolsCalled, TurnFailed

pytestmark = [pytest.mark.local_model, pytest.mark.timeout(1800)]
SETTINGS = {"temperature": 0.0, "max_tokens": 120, "timeout": 600}
WANTED = 9
# A request that expired would ask the model again, and this server breaks off one answer when the next is asked for.
PATIENT = Limits(approval_seconds=None)


def picked(rows: list[Row], desk: Desk) -> str:
    """The tool of the first call of a session, "answer" for words, or why there is neither; checks what must hold."""
    tools = {one.name: one for one in desk.tools()}
    first = "nothing"
    for row in rows:
        event = row.event
        if isinstance(event, TurnFailed):
            assert event.error == "unusable_call", event.message
            found = f"failed: {event.message}"
        elif isinstance(event, ToolsCalled):
            assert len(event.calls) == 1
            (made,) = event.calls
            assert made.tool in tools, "a tool that is not there was called"
            assert tools[made.tool].problem(json.dumps(made.parsed)) == "", "a call does not fit its tool"
            found = made.tool
        elif isinstance(event, MessageAdded) and event.by == "model":
            found = "answer"
        else:
            continue
        if isinstance(event, ToolsCalled | MessageAdded):
            assert event.usage is not None
            assert 1 <= event.usage.completions <= 1 + RETRIES, "the cap on tries was exceeded"
        first = found if first == "nothing" else first
    return first


@pytest.mark.parametrize("constrain", ["json_object", None])
async def test_a_small_model_picks_the_right_tool_for_most_questions_and_never_makes_a_bad_call(
    tmp_path: Path, constrain: str | None
) -> None:
    right = 0
    with local_server(context=4096, threads=1) as server:  # two threads wait for each other on a busy machine
        desk = Desk()
        model = open_model("smollm2-135m", base_url=server.url, settings=SETTINGS)
        untooled = Untooled(model, constrain="json_object") if constrain else Untooled(model)
        asked = {example for one in desk.tools() for example, _ in one.examples}
        agents = [desk.agent(untooled)]
        async with Engine(tmp_path / "weak.db", agents, new_id=Ids(), auto_approve=(), limits=PATIENT) as engine:
            for number, (question, wanted) in enumerate(QUESTIONS):
                assert question not in asked, "a question is an example"
                talk = await engine.create(f"q{number}")
                turn = await talk.send(question)
                found = picked(talk.rows(), desk)
                right += found == wanted
                print(f"{'right' if found == wanted else 'WRONG'}: {question} -> {found} ({turn.state}) {turn.text!r}")
                if wanted == found == "send_email":
                    assert turn.state == "awaiting_approval", "an email was sent unasked"
        assert all(name != "send_email" for name, _ in desk.ran)

    print(f"the right tool in {right} of {len(QUESTIONS)} ({'held to a schema' if constrain else 'free'})")
    assert right >= WANTED
