"""One tool while it runs, and what becomes of what it brings."""

import time
from hashlib import sha256
from typing import NamedTuple

from ..fsm import events as ev
from ..fsm import inputs as inp
from ..fsm.canonical import clean
from ..fsm.effects import RunTool
from ..fsm.errors import OutcomeUnknown
from ..fsm.events import Attachment
from .tools.function import ToolContext
from .values import told

CONTENT_LIMIT = 65_536  # characters of a tool result that are kept in a row; the rest goes into a blob
CONTENT_SHOWN = 16_384


def failure(error: BaseException) -> tuple[ev.ToolOutcome, str]:
    """How a run ended that raised."""
    return ("outcome_unknown", str(error)) if isinstance(error, OutcomeUnknown) else ("error", told(error))


class Run(NamedTuple):
    """A tool that runs."""

    effect: RunTool
    context: ToolContext
    started: float  # a duration for people; nothing is decided by it

    def ended(self, outcome: ev.ToolOutcome, content: str) -> tuple[inp.ToolFinished, bytes]:
        """The result, and what is to be kept as a blob because it is too long for a row."""
        content, data = clean(content), b""
        attached: tuple[Attachment, ...] = ()
        if len(content) > CONTENT_LIMIT:
            data = content.encode()
            mark = sha256(data).hexdigest()
            whole = Attachment(name="result.txt", media_type="text/plain", digest=mark, size=len(data), whole=True)
            attached = (whole,)
            content = f"{content[:CONTENT_SHOWN]}\n[cut: {len(content)} characters in all, kept as blob {mark}]"
        context, effect = self.context, self.effect
        finished = inp.ToolFinished(
            effect.key, effect.call_id, outcome, content,
            tuple(context.citations), (*context.attachments, *attached), tuple(context.notes),
            round((time.perf_counter() - self.started) * 1000), f"tool:{effect.tool}",
        )  # fmt: skip
        return finished, data
