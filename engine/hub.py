"""One live session: one inbox, one writer. Load, decide, append, publish, and make the runner do what is owed."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..fsm import inputs as inp
from ..fsm.decide import decide, pending
from ..fsm.errors import (
    CommandReused,
    Error,
    Fenced,
    Misuse,
    StaleVersion,
    StorageError,
    StorageFailed,
    StorageFull,
)
from ..fsm.events import Row
from ..fsm.session import Session, replay
from ..fsm.states import State
from ..store.base import Command, Draft
from .context import History
from .grants import uses
from .inbox import Batch, Item, Outcome, failure, repeated
from .missing import Missing
from .notices import Listener, Notice, Rows, Trouble
from .runner import PROBE_SECONDS, Runner

if TYPE_CHECKING:
    from .engine import Engine

_log = logging.getLogger(__name__)
PAGE = 500
CLOSE_SECONDS = 5.0  # how long a cancelled task may take to end
SNAPSHOT_EVERY = 1000  # rows; a load folds at most this many, plus what one snapshot costs to read
# A person's word is committed alone before it is acted on; everything else may carry the start of tools with it.
_ALONE = (inp.Decide, inp.Answer)
_STOPS = (inp.Say, inp.Stop, inp.TimerFired)  # may stop tools that run


class Hub:
    """The only writer of one session in this process."""

    def __init__(self, engine: "Engine", session_id: str) -> None:
        self.engine = engine
        self.session = Session(id=session_id)
        self.epoch = 0
        self.closed = False
        self.runner = Runner(self)
        self._history: History | None = None
        self._inbox: deque[Item] = deque()
        self._held: deque[Item] = deque()
        self._busy = True  # until it is open
        self._listeners: list[Listener] = []
        self._waiting: list[tuple[Callable[[Session], bool], asyncio.Future[Session]]] = []
        self.missing = Missing(self)
        self._snapshot_at = 0

    # Life -----------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Take the lease, fold the log and go on with whatever is in flight."""
        log, name = self.engine.log, self.session.id
        self.epoch = await asyncio.wrap_future(log.lease(name, self.engine.owner))
        self.session = self._load()
        if not self.session.started:
            self._busy = False
            return
        # Overdue timers come before anybody's word: nobody has heard of this hub yet.
        resume = inp.Resume(self.epoch, self.engine.owner, self.engine.code_version, self._tools())
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._inbox.append(Item(resume, done=done))
        self._busy = False
        self._pump()
        await done
        self.missing.compare()
        self.runner.reconcile(pending(self.session))
        self._pump()

    def _load(self) -> Session:
        name = self.session.id
        session = self.engine.snapshot(name) or Session(id=name)
        self._snapshot_at = session.seq
        while rows := self.engine.log.read(name, session.seq, PAGE):
            session = replay(rows, session)
        return session

    def refresh(self) -> None:
        """Catch up with the log after having been closed."""
        head = self.engine.log.head(self.session.id)
        if head is not None and head.seq != self.session.seq:
            self.session = self._load()

    def _tools(self) -> dict[str, str]:
        names = {name for agent in self.session.agents.values() for name in agent.tools}
        return {tool.name: tool.definition_digest for tool in self.engine.registry.named(sorted(names))}

    async def close(self) -> None:
        """Stop working on the session. Nothing is decided by that: the log says how to go on."""
        self.closed = True
        gone = self._gone()
        for item in (*self._inbox, *self._held):
            self._answer(item, gone)
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(gone)
        ending = self.runner.close()
        if ending:  # a tool that will not be cancelled must not keep the process
            await asyncio.wait(ending, timeout=CLOSE_SECONDS)

    def _gone(self) -> Error:
        return Error(f"session {self.session.id} was closed: open it again")

    @property
    def idle(self) -> bool:
        """Whether nothing is owed, asked or heard, so that the session may leave memory."""
        at_rest = not (self._busy or self._inbox or self._held or self._listeners or self._waiting)
        return at_rest and not pending(self.session)

    # In -------------------------------------------------------------------------------------------

    def put(self, given: inp.Input) -> None:
        """Put a result into the inbox."""
        self._inbox.append(Item(given))
        self._pump()

    async def submit(self, given: inp.Input, command: Command | None = None) -> Outcome:
        """Put a person's command into the inbox and wait until it is durable, or refused.

        Raises:
            CommandReused: the command id was used with another content. StorageError: it was not written.
        """
        if self.closed:
            raise self._gone()
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._inbox.append(Item(given, command, done))
        self._pump()
        return await done

    def wake(self) -> None:
        """Look at the timers now."""
        self._pump()

    def look_again(self) -> None:
        """Start calls that waited for their tools."""
        if not self.closed and (ready := self.missing.ready(pending(self.session))) is not None:
            self.put(ready)

    # Out ------------------------------------------------------------------------------------------

    @property
    def heard(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Hear everything from now on, and what is missing now; the answer ends it.

        A listener must return at once and never raise.

        Raises:
            Error: the session was closed.
        """
        if self.closed:
            raise self._gone()
        self._listeners.append(listener)
        for trouble in self.missing.troubles:
            self._tell(listener, trouble)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def publish(self, notice: Notice) -> None:
        """Tell the listeners."""
        for listener in tuple(self._listeners):
            self._tell(listener, notice)

    def _tell(self, listener: Listener, notice: Notice) -> None:
        try:
            listener(notice)
        except Exception:  # noqa: BLE001 - a viewer must not stop the session
            _log.exception("session %s: a listener failed and is heard no more", self.session.id)
            self._listeners.remove(listener)

    async def until(self, reached: Callable[[Session], bool]) -> Session:
        """Wait until the durable session fits.

        Raises:
            Error: the session was closed.
        """
        if reached(self.session):
            return self.session
        if self.closed:
            raise self._gone()
        future: asyncio.Future[Session] = asyncio.get_running_loop().create_future()
        self._waiting.append((reached, future))
        return await future

    def history(self) -> History:
        """The newest exchanges, up to the last durable row."""
        if self._history is None:
            self._history = History(self.engine.width)
            self._history.load(self.engine.log, self.session.id, self.session.seq)
        return self._history

    # The loop -------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Let inputs in, one at a time, until one has to wait for its commit; `_committed` goes on from there."""
        while not self._busy and not self.closed and (item := self._next()) is not None:
            self._apply(item)

    def _next(self) -> Item | None:
        if self.runner.due and (overdue := self.runner.overdue()):
            return Item(overdue[0])
        return self._inbox.popleft() if self._inbox else None

    def _apply(self, item: Item) -> None:
        try:
            if item.command is not None and self._repeated(item):
                return
            batch = self._decided(item)
        except Exception as error:  # noqa: BLE001 - whatever was handed in, the session lives and the sender is told
            self._misfit(item, error)
            return
        if not batch.drafts:
            self._answer(item, Outcome(self.session.seq, batch.refusal))
            return
        self._busy = True
        batch.uses = uses(batch.drafts)
        if batch.uses:
            self.engine.grants.hold(batch.uses)
        self.engine.commits.append(
            self.session.id, self.session.seq, self.epoch, batch.drafts, item.command, partial(self._committed, batch)
        )

    def _committed(self, batch: Batch, answer: tuple[Row, ...] | Error) -> None:
        """The append is durable, or it failed: act on it, tell whoever asked, and let the next input in."""
        self._busy = False
        if batch.uses:
            self.engine.grants.release(batch.uses)
        if isinstance(answer, Error):
            self._not_written(batch.item, answer)
        else:
            self._durable(batch.session, answer)
            self._answer(batch.item, Outcome(answer[-1].seq, batch.refusal))
            if not self.closed:
                if (ready := self.missing.ready(batch.effects)) is not None:
                    self._apply(Item(ready))
                self.runner.reconcile(batch.effects, answer)
        self._pump()

    def _not_written(self, item: Item, error: Error) -> None:
        if isinstance(error, StorageError) and not isinstance(error, StorageFailed):
            self._not_now(item, error)
        elif isinstance(error, StaleVersion):
            self._overtaken(item, error)
        elif isinstance(error, CommandReused):
            self._answer(item, error)
        elif isinstance(error, Misuse):
            self._misfit(item, error)
        else:
            self._lost(item, error)

    def _lost(self, item: Item, error: Error) -> None:
        self._answer(item, error)
        self.closed = True
        self.engine.lost(self, error)

    def _misfit(self, item: Item, error: Exception) -> None:
        """A command in a form that nothing can be made of is refused; a result of that sort becomes a failure."""
        told = error if isinstance(error, Error) else Misuse(f"{type(item.given).__name__} is not valid: {error}")
        if item.done is not None:
            self._answer(item, told)
            return
        if item.replaced:
            self._lost(item, told)
        elif (instead := failure(item.given, told)) is not None:
            self._inbox.appendleft(Item(instead, replaced=True))

    def _repeated(self, item: Item) -> bool:
        assert item.command is not None
        before = self.engine.log.applied(self.session.id, item.command.id)
        if before is None:
            return False
        if before.digest == item.command.digest:
            self._answer(item, repeated(self.engine.log, self.session.id, before.seq))
        else:
            error = CommandReused(f"command {item.command.id!r} was used before with another content: use a new id")
            self._answer(item, error)
        return True

    def _decided(self, item: Item) -> Batch:
        batch = Batch(self.session, item)
        given = item.given
        if isinstance(given, inp.ModelReplied) and given.calls:
            # Only now: a grant may have been taken back, or used up by another session, since the model was asked.
            given = given._replace(grants=self.engine.grants.of(self.session.owner))
        elif isinstance(given, inp.Revoke):
            given = replace(given, grants=self.engine.grants.of(self.session.owner))
        elif isinstance(given, _STOPS) and (made := self.runner.made()):
            given = given._replace(made=made) if isinstance(given, inp.Say) else replace(given, made=made)
        self._add(batch, given)
        batch.effects = pending(batch.session)
        if not isinstance(given, _ALONE) and (ready := self.missing.ready(batch.effects)) is not None:
            self._add(batch, ready)
            batch.effects = pending(batch.session)
        return batch

    def _add(self, batch: Batch, given: inp.Input) -> None:
        now = self.engine.clock.now()
        decision = decide(batch.session, given, now, self.engine.new_id)
        for event, actor, state in zip(decision.events, decision.by, decision.states, strict=True):
            batch.drafts.append(Draft(state, now, actor, event))
        batch.session, batch.refusal = decision.session, batch.refusal or decision.refusal

    def _durable(self, session: Session, rows: tuple[Row, ...]) -> None:
        self.session = session
        if self._history is not None:
            self._history.add(rows)
        self.engine.observe(self, rows)
        if self._listeners:
            self.publish(Rows(session.id, rows))
        for entry in tuple(self._waiting):
            if not entry[0](session):
                continue
            self._waiting.remove(entry)
            if not entry[1].done():
                entry[1].set_result(session)
        if session.seq - self._snapshot_at >= SNAPSHOT_EVERY:
            self._snapshot_at = session.seq
            self.engine.keep_snapshot(session, rows[-1].hash)

    def _not_now(self, item: Item, error: StorageError) -> None:
        """Nothing was written, for want of room or of a lock.

        A person is told and may send again; a result is kept and tried again, since nobody could repeat it.
        """
        self._answer(item, error)
        code = "storage_full" if isinstance(error, StorageFull) else "storage_busy"
        self.publish(Trouble(self.session.id, code, str(error)))
        clock = self.engine.clock
        if isinstance(item.given, inp.TimerFired):
            self.runner.postpone(item.given.request_id, PROBE_SECONDS)
        elif item.done is None:
            self._held.append(item)
            clock.call_at(clock.monotonic() + PROBE_SECONDS, self._probe)

    def _probe(self) -> None:
        self._inbox.extendleft(reversed(self._held))
        self._held.clear()
        self._pump()

    def _overtaken(self, item: Item, error: StaleVersion) -> None:
        """Somebody else wrote under our lease: fold their rows and let the input meet the state they left."""
        head = self.engine.log.head(self.session.id)
        if head is None or head.epoch != self.epoch:
            self._lost(item, Fenced(f"{error} (a newer owner has the session)"))
            return
        try:
            self.session, self._history = self._load(), None
        except Error as unreadable:
            self._lost(item, unreadable)
            return
        self.runner.reconcile(pending(self.session))
        self._inbox.appendleft(item)

    @staticmethod
    def _answer(item: Item, outcome: Outcome | Error) -> None:
        if item.done is None or item.done.done():
            return
        if isinstance(outcome, Error):
            item.done.set_exception(outcome)
        else:
            item.done.set_result(outcome)


def settled(session: Session) -> bool:
    """Whether the machine rests: it waits for a person, or has ended."""
    return session.state is not State.SUCCESS
