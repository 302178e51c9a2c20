"""Agents talk in a group. A director, a model of its own, picks who speaks next; a person may take a member out."""

import asyncio

from turnlog import Agent, Channel, Engine, person
from turnlog.engine.models.scripted import ScriptedModel, say
from turnlog.fsm.events import MemberRemoved, MessageAdded, SpeakerSelected

# Scripts, no LLMs. What hangs on a name does not matter; an answer that names nobody is replaced by chance.
DIRECTOR = ScriptedModel([say("**planner**"), say("Role: writer, who has the plan now"), say("TERMINATE")], "director")


TALK = {"planner": "First the title.", "writer": "It is: Chairs.", "critic": "Too short.", "clerk": "Noted."}


async def main() -> None:
    """One talk of three messages, and who chose the speakers."""
    members = [
        Agent(name, ScriptedModel([say(words)] * 2), role=f"You are the {name}.") for name, words in TALK.items()
    ]
    room = Channel(name="room", members=tuple(TALK), director="lead", max_rounds=3)
    async with Engine("group.db", [person(), *members], channels=[room], directors={"lead": DIRECTOR}) as engine:
        session = await engine.create(entry="room")
        await session.remove_member("room", "clerk")
        await session.send("Write about chairs.")
        for row in session.rows():
            match row.event:
                case MessageAdded() as said:
                    print(f"{said.sender}: {said.text}")
                case SpeakerSelected() as choice:
                    print(f"  -> {choice.speaker}, by {choice.by} {choice.raw!r}")
                case MemberRemoved() as gone:
                    print(f"  {gone.member} has left")
        print("ended:", session.rows()[-1].event.model_dump()["reason"])


asyncio.run(main())
