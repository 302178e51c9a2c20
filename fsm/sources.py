"""What the tools of an answer bring along: sources and files. They wait in the session until the answer is there."""

from collections.abc import Iterable

from .values import Attachment, Citation

EXCERPT = 1000  # characters of a source that are kept

Citations = tuple[Citation, ...]
Attachments = tuple[Attachment, ...]


def cited(before: Citations, more: Iterable[Citation]) -> Citations:
    """Sources with more of them: each id once, the first one stays. Without an id, only the very same is left out."""
    seen = {one.id or one: one for one in before}
    for one in more:
        seen.setdefault(one.id or one, one)
    return tuple(seen.values())


def cut(citations: Citations) -> Citations:
    """Sources as they are stored: each once, with an excerpt of bounded length."""
    return cited((), (_cut(one) for one in citations)) if citations else citations


def _cut(one: Citation) -> Citation:
    return one if len(one.excerpt) <= EXCERPT else one.model_copy(update={"excerpt": one.excerpt[:EXCERPT]})


def attached(before: Attachments, more: Iterable[Attachment]) -> Attachments:
    """Files with more of them, each once; the full text of a result that was cut is no file."""
    return tuple(dict.fromkeys((*before, *(one for one in more if not one.whole))))
