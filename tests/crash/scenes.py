"""The conversations in which processes are killed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turnlog.engine.models.base import ModelCall
from turnlog.engine.models.scripted import Step, attempts, call, fail, say


@dataclass(frozen=True)
class Scene:
    """What the model plays, what the person says, and how often each call may take effect."""

    script: Sequence[Step] | Callable[[ModelCall], Step]
    says: Sequence[str]
    rounds: int = 0  # two agents talk to each other, for so many messages
    group: int = 0  # three members of a group do, with a director


PAY = ("pay", {"amount": 5, "to": "A"})
LOOK = ("look", {"q": "rates"})
NOTE = ("note", {"text": "hello"})

SCENES = {
    "gated": Scene((call(PAY), say("Paid."), say("Bye.")), ("pay A", "thanks")),
    "free": Scene((call(LOOK), say("Seen."), say("Bye.")), ("look", "thanks")),
    "idempotent": Scene((call(NOTE), say("Noted."), say("Bye.")), ("note it", "thanks")),
    "round": Scene(
        (call(LOOK, PAY, ("pay", {"amount": 7, "to": "B"})), say("All done."), say("Bye.")), ("do all", "thanks")
    ),
    # Everything once: a free call, a round of three with a refusal, a failure and its retry, the end.
    "whole": Scene(
        (
            call(LOOK),
            say("Seen."),
            call(PAY, ("look", {"q": "again"}), ("burn", {"what": "letters"}), text="Let me see."),
            say("One was refused."),
            attempts(fail(), say("TERMINATE")),
        ),
        ("look", "do three things", "end it"),
    ),
    "failing": Scene((call(PAY), attempts(fail(), fail(), say("Paid."))), ("pay A",)),
    "broken": Scene((attempts(fail(), say("Better.")),), ("go",)),
    "two": Scene((call(LOOK, ("look", {"q": "other"})), say("Seen."), say("Hi.")), ("look twice", "hi")),
    "batch": Scene(
        (call(LOOK, ("slow", {"what": "dig"}), ("look", {"q": "other"})), say("Done."), say("Hi.")), ("dig", "thanks")
    ),
    # Each member looks something up before its first word.
    "group": Scene(lambda given: say(f"word {given.index}") if given.index else call(LOOK), ("begin",), group=4),
    "pair": Scene(lambda call: say(f"word {call.index}"), ("begin",), rounds=5000),
    "load": Scene(
        tuple(step for n in range(60) for step in (call(("look", {"q": str(n)}), NOTE), say(f"answer {n}"))),
        tuple(f"go {n}" for n in range(60)),
    ),
}
