"""A tool that asks the person instead of running anything: the session rests in `interrupt` until it is answered."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from .function import Tool

MOST = 10


class AskedQuestion(BaseModel):
    """One question, free text unless it has choices."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1)
    choices: list[str] = Field(default_factory=list)


class Asked(BaseModel):
    """The arguments of `ask_user`."""

    model_config = ConfigDict(extra="forbid")

    questions: Annotated[list[AskedQuestion], Field(min_length=1, max_length=MOST)]


def _never(**_: object) -> str:
    raise AssertionError("a question is put by the machine, no function runs")


ask_user = Tool(
    "ask_user",
    "Ask the person one or more questions and wait for the answers. Use it only when you cannot go on without.",
    _never,
    Asked,
    asks=True,
)
