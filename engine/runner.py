"""Performs the effects of one session as tasks: starts what is owed, cancels what is owed no more."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..fsm import inputs as inp
from ..fsm.canonical import canonical, clean, text_digest
from ..fsm.effects import CallModel, ChooseSpeaker, Effect, RunTool, WaitUntil
from ..fsm.errors import CorruptLog, StorageError, StorageFailed
from ..fsm.events import ApprovalResolved, ModelRequest, Row, ToolOutcome, ToolsCalled
from .agents import Agent
from .context import model_call, seen
from .directors import chosen
from .models.base import CallDelta, ModelError, ModelReply, ReasoningDelta, TextDelta, counted
from .notices import Piece, Trouble
from .offer import offered
from .prompt import asking, fetch, recorded, role_digest, static_parts, with_documents
from .proposals import propose
from .running import Run, failure
from .threads import Outcome, call_in
from .tools.function import Tool, ToolContext
from .values import told, told_value

if TYPE_CHECKING:
    from .hub import Hub

_log = logging.getLogger(__name__)
ENDING_SECONDS = 0.2  # an event loop that is ending has ended by then, or closed its engine
PIECES = 32  # of a stream, after which others get through
PROBE_SECONDS = 1.0  # between two tries while the storage has no room
Given = TypeVar("Given")
Brought = TypeVar("Brought")


class Runner:
    """The tasks and timers of one live session."""

    def __init__(self, hub: "Hub") -> None:
        self._hub = hub
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._contexts: dict[str, ToolContext] = {}
        self.due: dict[str, tuple[float, inp.TimerFired]] = {}
        self._timers: dict[str, Any] = {}

    def reconcile(self, effects: tuple[Effect, ...], fresh: tuple[Row, ...] = ()) -> None:
        """Make what runs equal to what is owed. `fresh` are the rows that were committed this moment."""
        owed = {effect.key for effect in effects}
        for key in [key for key in self._tasks if key not in owed]:
            self._cancel(key)
        for key in [key for key in self.due if key not in owed]:
            self._disarm(key)
        for effect in effects:
            if isinstance(effect, WaitUntil):
                if effect.key not in self.due:
                    self._arm(effect)
            elif effect.key not in self._tasks and (work := self._work(effect, fresh)) is not None:
                self._tasks[effect.key] = asyncio.get_running_loop().create_task(work)

    def _work(self, effect: Effect, fresh: tuple[Row, ...]) -> Coroutine[Any, Any, None] | None:
        match effect:
            case CallModel():
                return self._guard(effect.key, partial(self._call_model, effect))
            case ChooseSpeaker():
                return self._guard(effect.key, partial(self._choose, effect))
            case RunTool():
                return self._run_tool(effect, next((row for row in fresh if row.seq == effect.source), None))
            case _:
                return None

    def made(self) -> inp.MadeBy:
        """What the running tools have brought so far, by call id; only what can be stored."""
        return {one.call_id: one.made for one in self._contexts.values()}

    def overdue(self) -> list[inp.TimerFired]:
        """Timers whose time has come, whether or not the event loop got round to them."""
        now = self._hub.engine.clock.monotonic()
        return [fired for when, fired in sorted(self.due.values(), key=lambda one: one[0]) if when <= now]

    def close(self) -> list[asyncio.Task[None]]:
        """Cancel everything; the answer is what is still ending."""
        tasks = list(self._tasks.values())
        for key in list(self._tasks):
            self._cancel(key)
        for key in list(self.due):
            self._disarm(key)
        return tasks

    def _arm(self, effect: WaitUntil) -> None:
        clock = self._hub.engine.clock
        when = clock.monotonic() + max(0, effect.at - clock.now()) / 1000
        self._set(effect.key, when, inp.TimerFired(effect.request_id))

    def _set(self, key: str, when: float, fired: inp.TimerFired) -> None:
        self.due[key] = (when, fired)
        self._timers[key] = self._hub.engine.clock.call_at(when, self._hub.wake)

    def _disarm(self, key: str) -> None:
        del self.due[key]
        self._timers.pop(key).cancel()

    def postpone(self, request_id: str, seconds: float) -> None:
        """A deadline that could not be written down comes again in a moment."""
        for key, (_, fired) in list(self.due.items()):
            if fired.request_id == request_id:
                self._disarm(key)
                self._set(key, self._hub.engine.clock.monotonic() + seconds, fired)

    def _cancel(self, key: str) -> None:
        task = self._tasks.pop(key)
        if (context := self._contexts.pop(key, None)) is not None:
            context.cancel()
        task.cancel()

    def _deliver(self, key: str, result: inp.Input) -> None:
        """Hand a result in, unless the effect was called off meanwhile.

        The key stays until the result is durable: until then the effect is still owed, and must not start again.
        """
        if key in self._tasks:
            self._hub.put(result)

    def _unless_ending(self, key: str, result: inp.Input) -> None:
        """Hand in, a moment later, that an effect cancelled itself.

        Who ends the event loop cancels every task, too. Then nothing is recorded: how a tool ended is not known, and a
        model is asked again.
        """
        asyncio.get_running_loop().call_later(ENDING_SECONDS, self._deliver, key, result)

    async def _guard(self, key: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """A model that breaks its protocol fails like a provider that fails: the session goes to `error`."""
        try:
            await work()
        except asyncio.CancelledError:
            if key in self._tasks:  # nobody called it off: the model cancelled itself
                self._unless_ending(key, inp.ModelFailed(key, "unknown", "the model cancelled its own task"))
            raise
        except ModelError as error:
            kind, code = clean(str(error.kind or "unknown")), clean(str(error.code or ""))
            message = clean(str(error.message))
            retryable, usage = bool(error.retryable), error.usage
            self._deliver(key, inp.ModelFailed(key, kind, message, retryable=retryable, code=code, usage=usage))
        except BaseException as error:  # noqa: BLE001 - whatever a model raises must end as a row
            self._deliver(key, inp.ModelFailed(key, "unknown", clean(told(error))))

    async def _call_model(self, effect: CallModel) -> None:
        hub, engine = self._hub, self._hub.engine
        agent = engine.agent(effect.speaker)
        if agent is None or agent.model is None:
            raise ModelError(
                "not_found", f"no model is configured for {effect.speaker!r}: start the engine with this agent",
                retryable=True,
            )  # fmt: skip
        if agent.fetches and effect.speaker not in hub.session.fetched:
            await self._fetch(agent, effect)
        call, record = model_call(
            hub.session, hub.history(), agent, engine.registry,
            offer_tools=effect.offer_tools, attempt=effect.attempt, blob=engine.log.blob,
        )  # fmt: skip
        if agent.rerank is not None and len(call.tools) > agent.rerank.above:
            call, record = await offered(hub, agent.rerank, effect.speaker, call, record)
        if agent.parts or not engine.definitions.issuperset(record.tools):
            await self._keep_definitions(agent, record)
        if record.context:
            call = with_documents(call, engine.log.blob(record.context).decode())
        message_id = engine.new_id("m")
        reply = await self._stream(agent.model.stream(call), message_id, effect.key)
        names = hub.session.agents[effect.speaker].tools
        self._deliver(
            effect.key,
            inp.ModelReplied(
                key=effect.key, message_id=message_id, text=clean(reply.text),
                calls=propose(reply.calls, names, engine.registry, cut=reply.finish == "length"),
                reasoning=clean(reply.reasoning),
                extras=clean(reply.extras), usage=counted(reply.usage), model=reply.model or agent.model.name,
                finish=reply.finish, request=record, available=names,
                actor=f"agent:{effect.speaker}",
            ),
        )  # fmt: skip

    async def _fetch(self, agent: Agent, effect: CallModel) -> None:
        """Ask the agent's sources for this turn, and go on when what they gave is durable."""
        hub = self._hub
        messages = seen(hub.session, hub.history(), agent).messages
        fetched = await fetch(agent, asking(hub.session, agent.name, messages), hub.engine.threads)
        came = await recorded(fetched, effect.speaker, effect.key, lambda data: self._in_time(hub.engine.keep, data))
        outcome = await self._in_time(hub.submit, came)
        if outcome.refusal is not None:
            raise ModelError("unknown", outcome.refusal.why)

    async def _keep_definitions(self, agent: Agent, record: ModelRequest) -> None:
        """What a model is shown is durable before it answers: while there is no room, it is not asked."""
        known, registry = self._hub.engine.definitions, self._hub.engine.registry
        tools = registry.named(self._hub.session.agents[agent.name].tools)
        shown = {tool.definition_digest: tool.definition_text for tool in tools}
        shown |= {role_digest(text): text for text in static_parts((agent,))}
        for digest in (*record.tools, *record.parts):
            if digest in shown and digest not in known:
                known.add(await self._in_time(self._hub.engine.keep, shown[digest].encode()))

    async def _stream(self, deltas: Any, message_id: str, key: str) -> ModelReply:
        offsets: dict[tuple[str, int], int] = {}
        reply: ModelReply | None = None
        try:
            count = 0
            async for delta in deltas:
                count += 1
                if count % PIECES == 0:  # a stream that is always ready would let nobody else through
                    await asyncio.sleep(0)
                if isinstance(delta, ModelReply):
                    reply = delta
                    break
                if key in self._tasks:  # a model that goes on after it was called off is not heard
                    self._piece(delta, message_id, offsets)
        finally:
            close: Callable[[], Coroutine[Any, Any, None]] | None = getattr(deltas, "aclose", None)
            if close is not None:
                await close()
        if reply is None:
            raise ModelError("incomplete", "the stream ended without a reply")
        return reply

    def _piece(
        self,
        delta: TextDelta | ReasoningDelta | CallDelta,
        message_id: str,
        offsets: dict[tuple[str, int], int],
    ) -> None:
        kind, text, index, name = "text", "", 0, ""
        match delta:
            case TextDelta():
                text = clean(delta.text)
            case ReasoningDelta():
                kind, text = "reasoning", clean(delta.text)
            case CallDelta():
                kind, text, index, name = "call", clean(delta.arguments), delta.index, clean(delta.name)
        at = offsets.get((kind, index), 0)
        offsets[kind, index] = at + len(text)
        if self._hub.heard:
            self._hub.publish(Piece(self._hub.session.id, message_id, kind, at, text, index, name))

    async def _choose(self, effect: ChooseSpeaker) -> None:
        self._deliver(effect.key, await chosen(self._hub, effect, partial(self._stream, key=effect.key)))

    async def _run_tool(self, effect: RunTool, source: Row | None) -> None:
        engine = self._hub.engine
        context = ToolContext(
            self._hub.session.id, effect.call_id, effect.idempotency_key, self._noter(effect), engine.keep
        )
        self._contexts[effect.key] = context
        run = Run(effect, context, time.perf_counter())
        try:
            tool, arguments = self._allowed(effect, source)
            outcome, content = await self._perform(tool, arguments, run)
        except asyncio.CancelledError:
            if effect.key in self._tasks:
                why = "CancelledError: the tool cancelled itself"
                ended = inp.ToolFinished(effect.key, effect.call_id, "error", why, actor=f"tool:{effect.tool}")
                self._unless_ending(effect.key, ended)
            raise
        except BaseException as error:  # noqa: BLE001 - a tool may raise anything; the model is told
            outcome, content = failure(error)
        self._contexts.pop(effect.key, None)
        finished, whole = run.ended(outcome, content)
        try:
            if whole and effect.key in self._tasks:
                await self._in_time(self._hub.engine.keep, whole)
        except StorageFailed:  # the append of the result fails too, and says so
            pass
        finally:
            self._hand_in(finished, whole)

    def _hand_in(self, finished: inp.ToolFinished, whole: bytes) -> None:
        """A result. The machine refuses that of a call which was called off: so it is kept as a row all the same."""
        if self._hub.closed:
            _log.warning(
                "session %s: call %s ended with %s when nobody waited for it any more: %s",
                self._hub.session.id, finished.call_id, finished.outcome, finished.content[:200],
            )  # fmt: skip
            return
        if whole and finished.key not in self._tasks:
            self._hub.engine.log.put_blob(whole)  # if there is room; nothing waits for it
        self._hub.put(finished)

    def _allowed(self, effect: RunTool, source: Row | None) -> tuple[Tool, str]:
        """Take the allowed arguments from their row and check them against the digest that was allowed.

        A row that was not committed this moment is read back from the log: a person has had time to decide since.
        """
        tool = self._hub.engine.registry.get(effect.tool)
        if tool is None:
            raise LookupError(f"the tool {effect.tool!r} is not there any more; nothing ran")
        if source is None:
            source = next(iter(self._hub.engine.log.read(self._hub.session.id, effect.source - 1, 1)), None)
        event = source.event if source is not None else None
        stored: dict[str, Any] | None = None
        if isinstance(event, ToolsCalled):
            stored = next((record.parsed for record in event.calls if record.id == effect.call_id), None)
        elif isinstance(event, ApprovalResolved) and event.call_id == effect.call_id:
            stored = event.arguments
        text = canonical(stored)
        if stored is None or text_digest(text) != effect.digest:
            raise CorruptLog("the arguments in the log are not those that were allowed; nothing ran")
        return tool, text

    async def _perform(self, tool: Tool, arguments: str, run: Run) -> tuple[ToolOutcome, str]:
        values = tool.values(arguments)
        if tool.context_parameter:
            values[tool.context_parameter] = run.context
        if not tool.blocking:
            return "ok", told_value(await tool.function(**values))
        threads = self._hub.engine.threads
        value, failed = await threads.run(tool.name, tool.function, values, partial(self._late, run))
        if failed is not None:
            return failure(failed)
        return "ok", value if isinstance(value, str) else told_value(await value)

    def _late(self, run: Run, outcome: Outcome) -> None:
        """What a thread still brought after it was called off."""
        value, failed = outcome
        if failed is not None:
            self._hand_in(*run.ended(*failure(failed)))
        elif isinstance(value, str):
            self._hand_in(*run.ended("ok", value))
        elif (close := getattr(value, "close", None)) is not None:
            close()  # an async function behind a plain wrapper: it never began

    async def _in_time(self, work: Callable[[Given], Awaitable[Brought]], given: Given) -> Brought:
        """Store what must not be lost, as the result of a tool that has run: while there is no room, wait for it."""
        engine = self._hub.engine
        while True:
            try:
                return await work(given)
            except StorageFailed:
                raise
            except StorageError as error:
                self._hub.publish(Trouble(self._hub.session.id, "storage_full", str(error)))
            probe = asyncio.Event()
            engine.clock.call_at(engine.clock.monotonic() + PROBE_SECONDS, probe.set)
            await probe.wait()

    def _noter(self, effect: RunTool) -> Callable[[str], None]:
        loop = asyncio.get_running_loop()

        def note(text: str) -> None:
            call_in(loop, self._note, effect, text)

        return note

    def _note(self, effect: RunTool, text: str) -> None:
        if effect.key in self._tasks:  # a tool that goes on after it was called off is not heard
            self._hub.publish(Piece(self._hub.session.id, effect.call_id, "note", 0, text, name=effect.tool))
