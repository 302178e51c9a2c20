"""Arguments that are described by data: a small part of JSON Schema, checked like those of a typed function."""

from collections.abc import Collection, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from ...fsm.errors import Misuse

KINDS: dict[str, Any] = {
    "string": str, "integer": int, "number": float, "boolean": bool, "array": list[Any], "object": dict[str, Any],
}  # fmt: skip
KNOWN = frozenset({"type", "description", "default", "enum", "items"})


def arguments(label: str, properties: Mapping[str, Mapping[str, Any]], required: Collection[str]) -> type[BaseModel]:
    """A model of the arguments. What is not required and has no default is left out of the call.

    Raises:
        Misuse: names what is not understood.
    """
    if strange := [name for name in required if name not in properties]:
        raise Misuse(f"{label}: {strange[0]!r} is required, and not described")
    fields: dict[str, Any] = {}
    for name, about in properties.items():
        if not name.isidentifier() or name.startswith("_"):
            raise Misuse(f"{label}: {name!r} cannot be the name of an argument: use letters, digits and '_'")
        given = _type(f"{label}: {name}", about)
        description = str(about.get("description", "")) or None
        if name in required:
            fields[name] = (given, Field(description=description))
        elif "default" in about:
            fields[name] = (given, Field(about["default"], description=description))
        else:
            fields[name] = (given | None, Field(None, description=description))
    made: type[BaseModel] = create_model(label, __config__=ConfigDict(extra="forbid"), **fields)
    return made


def _type(label: str, about: Mapping[str, Any]) -> Any:
    if unknown := sorted(set(about) - KNOWN):
        raise Misuse(
            f"{label}: {unknown[0]!r} is not understood here (type, description, default, enum, items are): leave it "
            "out, or write a typed function instead of a schema"
        )
    if "enum" in about:
        values = about["enum"]
        if not isinstance(values, list) or not values or not all(isinstance(one, str | int) for one in values):
            raise Misuse(f"{label}: enum must be a list of texts or integers")
        return Literal[tuple(values)]
    kind = about.get("type", "string")
    if not isinstance(kind, str) or kind not in KINDS:
        raise Misuse(f"{label}: the type {kind!r} is none of {', '.join(KINDS)}")
    if kind == "array" and "items" in about:
        return list[_type(f"{label}.items", about["items"])]  # type: ignore[misc]  # made at run time
    return KINDS[kind]
