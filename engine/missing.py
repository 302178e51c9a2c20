"""What a session needs that the running engine does not have: its calls wait, and whoever listens is told."""

import logging
from typing import TYPE_CHECKING

from ..fsm import inputs as inp
from ..fsm.effects import Effect, StartTools
from .notices import Trouble

if TYPE_CHECKING:
    from .hub import Hub

_log = logging.getLogger(__name__)


class Missing:
    """Of one live session. A call that was made with a tool is never used up by an engine without that tool."""

    def __init__(self, hub: "Hub") -> None:
        self._hub = hub
        self._calls: dict[str, Trouble] = {}  # by the id of the call that waits
        self._agents: tuple[Trouble, ...] = ()

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        """What is missing now."""
        return (*self._agents, *self._calls.values())

    def ready(self, effects: tuple[Effect, ...]) -> inp.ToolsReady | None:
        """The word that calls may start now, with what the registry knows of their tools at this moment."""
        owed = next((effect.calls for effect in effects if type(effect) is StartTools), {})
        for call_id in [call_id for call_id in self._calls if call_id not in owed]:
            del self._calls[call_id]
        registry = self._hub.engine.registry
        facts: dict[str, inp.ToolFacts] = {}
        for call_id, name in owed.items():
            tool = registry.get(name)
            if tool is not None:
                facts[call_id] = registry.facts(tool)
            elif call_id not in self._calls:
                self._calls[call_id] = self._waits(name)
        if not facts:
            return None
        grants = self._hub.engine.grants.of(self._hub.session.owner)  # as they hold now, not when the model called
        return inp.ToolsReady(facts, grants)

    def _waits(self, tool: str) -> Trouble:
        code, why = "source_missing", self._hub.engine.sources.missing(tool)
        if not why:
            code = "tool_missing"
            why = f"the call of {tool!r} waits: start the engine with this tool, or stop the turn"
        return self._tell(code, why)

    def compare(self) -> None:
        """Tell in what the engine differs from the agents that the log names."""
        engine, session = self._hub.engine, self._hub.session
        told: list[Trouble] = []
        for spec in session.agents.values():
            mine = engine.agent(spec.name)
            lacking = [
                name for name in spec.tools if engine.registry.get(name) is None and not engine.sources.missing(name)
            ]
            if spec.model and (mine is None or mine.model is None):
                why = f"{spec.name!r} has no model here: start the engine with this agent"
                told.append(self._tell("agents_differ", why))
            if lacking:
                why = f"{spec.name!r} was granted {', '.join(map(repr, lacking))}, which this engine does not have"
                told.append(self._tell("agents_differ", f"{why}: start it with what is missing"))
            if mine is not None and (mine.role, mine.interrupt) != (spec.role, spec.interrupt):
                why = f"{spec.name!r} had another role when the session began, and keeps it: begin a new session"
                told.append(self._tell("agents_differ", f"{why} for the new one", logging.INFO))  # nothing waits for it
        self._agents = tuple(told)

    def _tell(self, code: str, why: str, level: int = logging.WARNING) -> Trouble:
        _log.log(level, "session %r: %s", self._hub.session.id, why)
        trouble = Trouble(self._hub.session.id, code, why)
        self._hub.publish(trouble)
        return trouble
