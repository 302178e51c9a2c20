"""Agents for `turnlog serve --app support:agents` and `turnlog chat --app support:agents`, run in this folder.

With MODEL set to openai:NAME or anthropic:NAME (and the extra `models`) a real model answers, else a script does.
"""

import os

from turnlog import Agent, ToolContext, tool
from turnlog.engine.models.base import Model
from turnlog.engine.models.pydantic_ai import open_model
from turnlog.engine.models.scripted import ScriptedModel, call, say

ORDERS = {"A1": "two lamps, delivered", "A2": "one chair, lost on the way"}


@tool(idempotent=True)
def look_up(order: str) -> str:
    """Tell what is known of an order."""
    return ORDERS.get(order, "there is no such order")


@tool(needs_approval=True, risk="spends money")
def refund(order: str, euros: int, context: ToolContext) -> str:
    """Pay money back to the customer of an order."""
    context.introspect(f"the bank takes {euros} euros")
    # The same for every attempt at this call, so a bank that knows such keys pays once whatever happens.
    return f"{euros} euros for {order} are on their way, key {context.idempotency_key}"


def model() -> Model:
    """The model that MODEL names, or a script."""
    if name := os.environ.get("MODEL"):
        return open_model(name)
    steps = [
        call(("look_up", {"order": "A2"})),
        call(("refund", {"order": "A2", "euros": 40}), text="The chair of A2 was lost."),
        say("I am sorry about the chair. I have done what I may."),
    ]
    return ScriptedModel(lambda given: steps[given.index % len(steps)], "scripted, not an LLM")


def agents() -> list[Agent]:
    """Who takes part."""
    return [Agent("@support", model(), role="You help customers of a shop.", tools=[look_up, refund])]
