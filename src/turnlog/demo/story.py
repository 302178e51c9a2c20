"""The demo from beginning to end. It checks what it claims, and fails when a claim does not hold."""

import asyncio
import signal
from collections import Counter
from pathlib import Path

from ..cli.application import demo_folder
from ..cli.audit import audit
from ..cli.card import Ask, Word, ask_word, card, told
from ..cli.replay import replay
from ..cli.rows import row_line
from ..cli.text import arguments, say, visible
from ..cli.verify import verify
from ..fsm.errors import Error
from ..fsm.events import ApprovalRequested, Row
from ..fsm.states import State
from ..store import LogReader
from ..store.audit import audit_session
from . import talk
from .agent import FILES, MODEL, ledger
from .process import ServerProcess

DEFAULTS = (
    Word("approved", {"path": "app-1.log"}),
    Word("denied", reason="we still look into that bug"),
)


class Story:
    """One run over one folder. `ask` is None when nobody is there to be asked."""

    def __init__(self, folder: Path, ask: Ask | None) -> None:
        self.db = folder / "turnlog.db"
        self.token_file = folder / "token"
        self.files = demo_folder(self.db)
        self.ask = ask
        self.rows: list[Row] = []
        self.failed: list[str] = []

    def tell(self) -> bool:
        """Run it; the answer is whether every claim held."""
        self._head(f"A folder of toy files, an agent whose model is {MODEL}, and a server process")
        server = self._start()
        try:
            asked = self._wait_for_approval(server)
            server, again = self._kill(server, asked)
            decided = self._decide(server, again)
            self._retry(server)
            self.check("the server stopped when it was asked to", server.stop() == 0)
        finally:
            server.kill()
        self._look_back(decided)
        return not self.failed

    # Steps ----------------------------------------------------------------------------------------

    def _start(self) -> ServerProcess:
        server = ServerProcess(self.db, self.token_file)
        say(f"server {server.pid} listens at {server.url}; log: {self.db}")
        return server

    def _wait_for_approval(self, server: ServerProcess) -> list[ApprovalRequested]:
        self._head("A client connects and asks. Each line is a durable row: number, state after it, who, what")
        asked = asyncio.run(talk.begin(server.url, server.token, self._see))
        say("")
        for one in asked:
            for line in card(one):
                say(line)
        self.check("nothing was deleted while the calls wait", self._left() == set(FILES))
        return asked

    def _kill(
        self, server: ServerProcess, asked: list[ApprovalRequested]
    ) -> tuple[ServerProcess, list[ApprovalRequested]]:
        self._head(f"kill -9 {server.pid}, while it waits for an answer; then it is started again")
        code = server.kill()
        self.check("the server was killed, it did not stop by itself", code == -signal.SIGKILL)
        server = self._start()
        again = asyncio.run(talk.look(server.url, server.token))
        for one in again:
            for line in card(one):
                say(line)
        same = [(one.request_id, one.digest, one.deadline) for one in asked]
        found = [(one.request_id, one.digest, one.deadline) for one in again]
        self.check("the same requests are open, with the same deadline", found == same)
        return server, again

    def _decide(self, server: ServerProcess, asked: list[ApprovalRequested]) -> dict[str, Word]:
        self._head("Your word on each call" if self.ask else "Nobody sits at a terminal, so the demo decides by itself")
        decided: dict[str, Word] = {}
        wanted: list[str] = []
        for request, default in zip(asked, DEFAULTS, strict=True):
            word = decided[request.request_id] = self._word(server, request, default)
            if word.outcome == "approved":
                wanted.append(str((word.arguments or request.arguments)["path"]))
        self._head("What is allowed runs, a tool fails, then the provider fails")
        asyncio.run(talk.follow(server.url, server.token, self.rows[-1].seq, self._see, State.ERROR))
        self._check_folder(wanted)
        return decided

    def _word(self, server: ServerProcess, request: ApprovalRequested, default: Word) -> Word:
        while True:
            say(f"{visible(request.tool)} {arguments(request.arguments)}")
            word = ask_word(request, self.ask, default) if self.ask else default
            say(f"  {told(word)}")
            why = asyncio.run(talk.decide(server.url, server.token, request, word))
            if not why:
                return word
            say(f"  refused: {visible(why)}")
            if self.ask is None:
                raise Error(f"the demo's own word was refused: {why}. Please report this")

    def _check_folder(self, wanted: list[str]) -> None:
        lines = ledger(self.files).read_text(encoding="utf-8").splitlines() if ledger(self.files).exists() else []
        gone = set(FILES) - self._left()
        say(f"\nfiles now: {', '.join(sorted(self._left()))}")
        ran = ", ".join(visible(line) for line in lines) or "nothing"
        self.check(f"what was allowed ran once: {ran}", Counter(lines) == Counter(wanted))
        self.check("only allowed files are gone", gone == set(wanted) & set(FILES))
        failed = [row for row in self.rows if row.event.kind == "tool_returned" and row.event.outcome == "error"]
        self.check("a tool failed, and the conversation went on", bool(failed))
        self.check("the provider failed, and the session is in error", self.rows[-1].state == "error")

    def _retry(self, server: ServerProcess) -> None:
        self._head("Retry")
        if self.ask:
            self.ask("Enter tries the failed completion again: ")
        asyncio.run(talk.retry(server.url, server.token, self.rows[-1].seq, self._see))
        self.check("the turn came to its end", self.rows[-1].event.kind == "turn_interrupted")

    def _look_back(self, decided: dict[str, Word]) -> None:
        self._command(f"turnlog audit {talk.SESSION}")
        audit(talk.SESSION, db=self.db)
        waiting = next(row.seq for row in reversed(self.rows) if row.event.kind == "approval_requested")
        self._command(f"turnlog replay {talk.SESSION} --to {waiting}")
        replay(talk.SESSION, to=waiting, db=self.db)
        self._command("turnlog verify")
        verify(db=self.db)
        say("")
        self._check_log(decided)

    def _check_log(self, decided: dict[str, Word]) -> None:
        reader = LogReader(self.db)
        try:
            entries = audit_session(reader, talk.SESSION)[0].entries
            stored = reader.read(talk.SESSION)
        finally:
            reader.close()
        words = {one.request_id: one.outcome for one in entries if one.via == "person"}
        self.check("the audit has each word", words == {key: word.outcome for key, word in decided.items()})
        runs = {one.request_id: len(one.runs) for one in entries if one.via == "person"}
        once = {key: int(word.outcome == "approved") for key, word in decided.items()}
        self.check("the audit has one run for each allowed call and none for the others", runs == once)
        seen = {row.seq: row.hash for row in self.rows}
        there = {row.seq: row.hash for row in stored if row.seq in seen}
        self.check("the rows that the client saw are the rows of the log", seen == there)

    # Telling --------------------------------------------------------------------------------------

    def check(self, claim: str, holds: bool) -> None:  # noqa: FBT001 - reads as a sentence
        """Tell a claim and whether it holds."""
        say(f"  [{'ok' if holds else 'FAILED'}] {claim}", colour="green" if holds else "red")
        if not holds:
            self.failed.append(claim)

    def _see(self, row: Row) -> None:
        self.rows.append(row)
        say(row_line(row, at=False))

    def _left(self) -> set[str]:
        return {one.name for one in self.files.iterdir()}

    def _head(self, text: str) -> None:
        say(f"\n== {text} ==", bold=True)

    def _command(self, text: str) -> None:
        say(f"\n$ {text}", bold=True)


def run(folder: Path, ask: Ask | None) -> None:
    """Run the demo in an empty folder.

    Raises:
        Error: a claim did not hold.
    """
    story = Story(folder, ask)
    if not story.tell():
        raise Error(f"the demo's claims did not hold: {'; '.join(story.failed)}. Please report this")
