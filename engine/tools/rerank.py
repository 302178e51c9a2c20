"""Many tools and one question: which of them is a model offered, and in what order?

Without an embedder tools are only put in order, by the words that they share with what was said (SQLite's FTS5). With
one (`MiniLM`, or your own) those that fit worst are left out. What is left out stays granted: a model that calls it
anyway, by a name that it remembers, is not refused.
"""

import math
import re
import sqlite3
from array import array
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from hashlib import sha256
from operator import mul
from pathlib import Path
from typing import Protocol

from ...fsm.errors import Misuse
from ...fsm.values import ToolChoice
from ..threads import Line
from .function import Tool

TEXT_LIMIT = 1000  # characters that are looked at, of a tool and of a message
WORDS_LIMIT = 200  # different words of the messages that are searched for
FADING = 0.9  # what a message weighs against the one after it: "yes, do it" must not drown what "it" is
_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Embedder(Protocol):
    """Turns texts into vectors of one length, none of them all zeros.

    It is called in a thread, by one `Rerank` one call at a time. `name` must change when the vectors do: they are kept
    under it.
    """

    name: str

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """One vector for each text, in order."""
        ...


class Rerank:
    """How the tools of an agent that has many are chosen. `above` tools or fewer are offered as they are, at no cost.

    Args:
        embedder: leaves tools out; without one they are only put in order.
        keep: how many tools are offered when some are left out.
        above: nothing is done for an agent with this many tools, or fewer.
        pinned: names of tools that are always offered. So are those that were called in the session before.
        messages: how many of the newest messages to the agent are looked at.
        cache: a file for the vectors of tools; it may be deleted, and shared. None keeps them in memory.

    Raises:
        Misuse: a number makes no sense.
    """

    def __init__(
        self,
        embedder: Embedder | None = None,
        *,
        keep: int = 15,
        above: int = 20,
        pinned: Collection[str] = (),
        messages: int = 4,
        cache: str | Path | None = None,
    ) -> None:
        if keep < 1 or above < keep or messages < 1:
            raise Misuse(
                f"keep={keep}, above={above}, messages={messages}: at least one tool and one message are needed, and "
                "`above` must not be less than `keep`"
            )
        if isinstance(pinned, str):
            raise Misuse(f"pinned is the text {pinned!r}: give a list of names")
        self.embedder = embedder
        self.keep, self.above, self.messages = keep, above, messages
        self.pinned = tuple(pinned)
        self.vectors = Vectors(cache)
        self.line = Line()

    def choose(self, tools: Sequence[Tool], texts: Sequence[str], used: Collection[str] = ()) -> ToolChoice:
        """Which tools to offer.

        Args:
            tools: what is granted, in the agent's order.
            texts: the newest messages, the newest first.
            used: names of tools that were called before.
        """
        texts = [text for text in texts if text.strip()]
        if not texts:
            return ToolChoice(by="all", granted=len(tools), problem="nothing was said that could be compared")
        if self.embedder is None:
            return ToolChoice(by="text", granted=len(tools), tools=tuple(by_words(tools, texts)))
        scores = self._scores(self.embedder, tools, texts)
        ranked = [tools[place].name for place in sorted(range(len(tools)), key=lambda place: -scores[place])]
        always = tuple(tool.name for tool in tools if tool.name in self.pinned or tool.name in used)
        room = max(0, self.keep - len(always))
        kept = {*always, *[name for name in ranked if name not in always][:room]}
        return ToolChoice(
            by="embeddings", granted=len(tools), tools=tuple(name for name in ranked if name in kept), always=always,
            model=self.embedder.name,
        )  # fmt: skip

    def _scores(self, embedder: Embedder, tools: Sequence[Tool], texts: Sequence[str]) -> list[float]:
        """Of each tool the best likeness to a message, an older one counting less."""
        known = self.vectors.of(embedder, [described(tool) for tool in tools])
        asked = [unit(vector) for vector in embedder.embed([shortened(text) for text in texts])]
        if len(asked) != len(texts):
            raise ValueError(f"{embedder.name} made {len(asked)} vectors of {len(texts)} texts")
        return [max(_likeness(tool, one) * FADING**age for age, one in enumerate(asked)) for tool in known]


def by_words(tools: Sequence[Tool], texts: Iterable[str]) -> list[str]:
    """The names of tools, those first that share the most telling words with the texts; the others in their order."""
    words = list(dict.fromkeys(word.lower() for text in texts for word in _WORD.findall(shortened(text))))
    query = " OR ".join(f'"{word}"' for word in words[:WORDS_LIMIT])
    if not query:
        return [tool.name for tool in tools]
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(
            "CREATE VIRTUAL TABLE tools USING fts5(name, description, parameters, "
            "tokenize = 'porter unicode61 remove_diacritics 2')"
        )
        db.executemany(
            "INSERT INTO tools (rowid, name, description, parameters) VALUES (?, ?, ?, ?)",
            [(place, *parts(tool)) for place, tool in enumerate(tools)],
        )
        # A word of the name tells more than one of the description, and that more than one of a parameter.
        found = db.execute("SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, 4, 2, 1), rowid", (query,))
        best = [int(place) for (place,) in found]
    rest = sorted(set(range(len(tools))) - set(best))
    return [tools[place].name for place in (*best, *rest)]


def parts(tool: Tool) -> tuple[str, str, str]:
    """The words of a name, the description, and the names and descriptions of the parameters."""
    shown = tool.definition
    properties = shown.parameters.get("properties", {})
    about = [f"{name} {rule.get('description', '')}" for name, rule in properties.items() if isinstance(rule, dict)]
    return spelled(tool.name), shortened(shown.description), shortened(spelled(" ".join(about)))


def described(tool: Tool) -> str:
    """A tool in words."""
    name, description, parameters = parts(tool)
    return shortened(f"{name}. {description} {parameters}".strip())


def spelled(name: str) -> str:
    """A name as its words: `sendInvoice` and `send_invoice` hold the same two."""
    return " ".join(_WORD.findall(_CAMEL.sub(" ", name)))


def shortened(text: str) -> str:
    """The beginning, cut at a word."""
    return text if len(text) <= TEXT_LIMIT else text[:TEXT_LIMIT].rsplit(None, 1)[0]


class Vectors:
    """The vectors of tools, by the hash of the embedder's name and of the words: in memory, and in a file."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = path
        self._known: dict[str, array[float]] = {}

    def of(self, embedder: Embedder, texts: Sequence[str]) -> list["array[float]"]:
        """One vector of length 1 for each text; those that are not known are made, and kept."""
        keys = [sha256(f"{embedder.name}\0{text}".encode("utf-8", "replace")).hexdigest() for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._known}
        if missing and self.path is not None:
            with closing(self._open(self.path)) as db:
                self._read(db, missing)
                self._make(embedder, missing, db)
        elif missing:
            self._make(embedder, missing, None)
        return [self._known[key] for key in keys]

    @staticmethod
    def _open(path: str | Path) -> sqlite3.Connection:
        db = sqlite3.connect(path, isolation_level=None)
        try:
            db.execute("CREATE TABLE IF NOT EXISTS vectors (key TEXT PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID")
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _read(self, db: sqlite3.Connection, missing: dict[str, str]) -> None:
        for key in list(missing):
            for (blob,) in db.execute("SELECT vector FROM vectors WHERE key = ?", (key,)):
                vector = array("f")
                vector.frombytes(blob)
                self._known[key] = vector
                del missing[key]

    def _make(self, embedder: Embedder, missing: dict[str, str], db: sqlite3.Connection | None) -> None:
        if not missing:
            return
        made = [unit(vector) for vector in embedder.embed(list(missing.values()))]
        new = dict(zip(missing, made, strict=True))
        self._known.update(new)
        if db is not None:
            rows = [(key, vector.tobytes()) for key, vector in new.items()]
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT OR REPLACE INTO vectors (key, vector) VALUES (?, ?)", rows)
            db.execute("COMMIT")


def unit(vector: Iterable[float]) -> "array[float]":
    """The vector with the length 1.

    Raises:
        ValueError: it has no direction.
    """
    numbers = [float(one) for one in vector]
    length = math.hypot(*numbers)
    if not (math.isfinite(length) and length > 0):
        raise ValueError("an embedder made a vector without a direction")
    return array("f", [one / length for one in numbers])


def _likeness(one: "array[float]", other: "array[float]") -> float:
    if len(one) != len(other):
        raise ValueError(f"an embedder made vectors of {len(one)} and of {len(other)} numbers")
    return float(sum(map(mul, one, other)))
