"""A tool whose arguments are described by a JSON Schema of somebody else's, and checked by it."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from ...fsm.canonical import read_json
from ...fsm.history import provider_name
from ..models.base import ToolDefinition
from .function import Tool

ARGUMENTS, CONTEXT = "arguments", "context"


class AnyArguments(BaseModel):
    """Stands where a function's tool has its own model; the schema is what counts."""


@dataclass(frozen=True)
class SchemaTool(Tool):
    """A tool with a `schema`. Its function is async and takes `arguments` (a dict) and `context`.

    `fault` tells what is wrong with arguments, in words for a model; "" when they fit.
    """

    schema: dict[str, Any] = field(default_factory=dict, compare=False)
    fault: Callable[[Any], str] = field(default=lambda _: "", compare=False)

    @cached_property
    def definition(self) -> ToolDefinition:
        """What a model is shown."""
        schema = {"type": "object", "properties": {}, **self.schema}
        return ToolDefinition(provider_name(self.name), self.description, schema, self.examples, self.problem)

    def problem(self, text: str) -> str:
        """What does not fit the schema, in words for a model; "" when the arguments (a JSON text) fit."""
        try:
            value = read_json(text)
        except ValueError as error:
            return str(error)
        return self.fault(value)

    def values(self, text: str) -> dict[str, Any]:
        """The arguments (a JSON text) as what the function is called with."""
        return {ARGUMENTS: json.loads(text)}
