"""Asks the director of a group who speaks next."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from ..fsm.canonical import clean
from ..fsm.effects import ChooseSpeaker
from ..fsm.history import UserMessage, view
from ..fsm.inputs import SpeakerChosen
from .models.base import Delta, ModelCall, ModelError, ModelReply, counted

if TYPE_CHECKING:
    from .hub import Hub

Stream = Callable[[AsyncIterator[ModelReply], str], Awaitable[ModelReply]]


async def chosen(hub: "Hub", effect: ChooseSpeaker, stream: Stream) -> SpeakerChosen:
    """The director's words and a number to fall back on. Nobody is asked where there is nothing to choose.

    Raises:
        ModelError: the director failed, or the engine was started without it.
    """
    engine = hub.engine
    name = hub.session.channels[effect.channel].director
    if not name or len(effect.candidates) == 1:
        return SpeakerChosen(effect.key, "", engine.seed())
    director = engine.directors.get(name)
    if director is None:
        raise ModelError("not_found", f"no director {name!r} is configured: start the engine with it")
    reply = await stream(_quiet(director.stream(director_call(hub, effect))), "")
    return SpeakerChosen(
        effect.key, clean(reply.text), engine.seed(), f"director:{name}", clean(reply.model or director.name),
        counted(reply.usage),
    )  # fmt: skip


def director_call(hub: "Hub", effect: ChooseSpeaker) -> ModelCall:
    """What a director is asked: who there is, what was said, and who may speak."""
    session = hub.session
    group = session.channels[effect.channel]
    there = [name for name in group.members if (group.name, name) not in session.left]
    roles = "\n".join(f"{name}: {session.agents[name].role}" for name in there)
    transcript = view(hub.history().exchanges, "", group.name, group.members)
    ask = f"{group.role}\nThe members are:\n{roles}\nAnswer with one name only: who speaks next?"
    choice = UserMessage(f"Who of {', '.join(effect.candidates)} speaks next? Answer with one name only.")
    return ModelCall(ask.strip(), [*transcript, choice], index=session.step, attempt=effect.attempt)


async def _quiet(deltas: AsyncIterator[Delta | ModelReply]) -> AsyncIterator[ModelReply]:
    """Only the reply: a director's words are not shown as a message."""
    async for delta in deltas:
        if isinstance(delta, ModelReply):
            yield delta
