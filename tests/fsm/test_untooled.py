"""What a model without tools of its own is asked."""

import json
from dataclasses import dataclass, field
from typing import Any

from turnlog.fsm.history import AssistantMessage, CallPart, Message, ToolMessage, UserMessage
from turnlog.fsm.picks import Offer, Pick, read
from turnlog.fsm.untooled import Failed, Prompt, build, schema


@dataclass(frozen=True)
class Shown:
    """A tool as it is offered."""

    name: str
    description: str
    parameters: dict[str, Any]
    examples: tuple[tuple[str, dict[str, Any]], ...] = field(default=())


LOOK = Shown("look", "Look something up.", {"properties": {"q": {"type": "string"}}, "required": ["q"]})
PAY = Shown(
    "pay", "Pay.", {"properties": {"amount": {"type": "integer"}}, "required": ["amount"]},
    (("Give Bob five.", {"amount": 5}), ("Give Ann two.", {"amount": 2})),
)  # fmt: skip
TOOLS = (LOOK, PAY)
OFFER = Offer(tool.name for tool in TOOLS)
HISTORY: list[Message] = [
    UserMessage("What is x?"),
    AssistantMessage("", (CallPart("c1", "look", '{"q": "x"}'), CallPart("c2", "look", '{"q": "y"}'))),
    ToolMessage("c1", "look", "x is 7"),
    ToolMessage("c2", "look", "no", outcome="error"),
    AssistantMessage("It is 7."),
    UserMessage("And z?"),
]


def prompt(
    messages: list[Message], *failed: Failed, tools: tuple[Shown, ...] = TOOLS, role: str = "Be brief."
) -> Prompt:
    made = build(role, messages, tools, Offer(tool.name for tool in tools), failed)
    sides = [type(message) for message in made.messages]
    assert sides == [UserMessage, AssistantMessage] * (len(sides) // 2) + [UserMessage], "the sides do not alternate"
    return made


def texts(made: Prompt, newest: int = 100) -> list[str]:
    found = []
    for message in made.messages:
        assert isinstance(message, UserMessage | AssistantMessage)
        found.append(message.text)
    return found[-newest:]


def test_the_role_and_every_tool_with_its_parameters_are_in_the_system_prompt() -> None:
    system = prompt(HISTORY).system
    for text in (
        "Be brief.",
        "look(q: string): Look something up.",
        "pay(amount: integer): Pay.",
        "answer(text: string)",
    ):
        assert text in system


def test_the_past_is_told_as_turns_one_call_and_its_result_at_a_time() -> None:
    assert texts(prompt(HISTORY), 7) == [
        "What is x?",
        '{"name": "look", "arguments": {"q": "x"}}',
        "Result of look: x is 7",
        '{"name": "look", "arguments": {"q": "y"}}',
        "Result of look (error): no",
        '{"name": "answer", "arguments": {"text": "It is 7."}}',
        "And z?",
    ]


def test_examples_are_turns_those_of_the_tool_or_one_made_from_its_schema() -> None:
    found = texts(prompt([UserMessage("hi")]))
    assert found[found.index("Give Bob five.") + 1] == '{"name": "pay", "arguments": {"amount": 5}}'
    assert found[found.index("Give Ann two.") + 1] == '{"name": "pay", "arguments": {"amount": 2}}'
    made = json.loads(next(text for text in found if text.startswith('{"name": "look"')))
    assert made["arguments"].keys() == {"q"}
    assert not any("Give" in text for text in texts(prompt([UserMessage("hi")], tools=(LOOK,))))


def test_each_answer_of_the_examples_would_itself_be_read_as_what_it_shows() -> None:
    said = [message.text for message in prompt([UserMessage("hi")]).messages if isinstance(message, AssistantMessage)]
    found = [read(text, OFFER, lambda name, arguments: "") for text in said]
    assert [one.name for one in found if isinstance(one, Pick)] == ["look", "pay", "pay"]


def test_a_bad_try_is_followed_by_what_was_wrong_with_it() -> None:
    said, told = texts(prompt(HISTORY, Failed("{bad", "that is no complete JSON object")), 2)
    assert said == "{bad"
    assert told.startswith("That was not run: that is no complete JSON object.")
    assert '"name"' in told


def test_a_history_that_begins_or_ends_with_the_speaker_still_makes_turns() -> None:
    for tools in (TOOLS, ()):
        prompt([AssistantMessage("Hello."), UserMessage("Hi.")], tools=tools)
        prompt([UserMessage("Hi."), AssistantMessage("Hello.")], tools=tools)
        prompt([AssistantMessage("One."), AssistantMessage("Two.")], tools=tools)
        prompt([], tools=tools)


def test_without_tools_the_role_is_all_and_answers_are_plain() -> None:
    made = prompt(HISTORY, tools=())
    assert made.system == "Be brief."
    assert texts(made)[-2:] == ["It is 7.", "And z?"]


def test_the_schema_names_each_tool_once_and_bounds_every_string() -> None:
    deep = Shown(
        "deep", "", {
            "$defs": {"Node": {"type": "object", "properties": {
                "text": {"type": "string", "title": "T", "maxLength": 9},
                "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
            }}},
            "properties": {"node": {"$ref": "#/$defs/Node"}, "kind": {"type": "string", "enum": ["a"]}},
        },
    )  # fmt: skip
    made = schema((LOOK, deep), Offer(("look", "deep")), 50)
    names = [one["properties"]["name"]["const"] for one in made["anyOf"]]
    assert names == ["look", "deep", "answer"]
    text = json.dumps(made)
    assert "$ref" not in text
    assert "$defs" not in text
    assert made["anyOf"][0]["properties"]["arguments"]["properties"]["q"] == {"type": "string", "maxLength": 50}
    node = made["anyOf"][1]["properties"]["arguments"]["properties"]["node"]
    assert node["properties"]["text"] == {"type": "string", "maxLength": 9}
    assert made["anyOf"][1]["properties"]["arguments"]["properties"]["kind"] == {"type": "string", "enum": ["a"]}
    assert len(text) < 5000, "a schema that holds itself was written out for ever"
