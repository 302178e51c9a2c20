r"""`Flow`: a tool that is data, a fixed sequence of steps.

{"id": "report", "description": "Write a report about a city.", "direct": true,
 "variables": {"city": {"type": "string"}},
 "steps": [{"tool": "weather#now", "arguments": {"city": "{{city}}"}, "into": "weather"},
           {"instruction": "Two sentences about {{weather.sky}} in {{city}}.", "into": "text"},
           {"set": "# {{city}}\n\n{{text}}", "into": "report"}]}

`{{name}}`, `{{name.key}}` and `{{name[0].key}}` stand for a variable or a part of it. Alone in a text it keeps its kind
(a number stays a number), among other words it becomes text. A result that is a JSON object or list can be looked into.

Approval: a flow with a step whose tool needs a word needs one itself, and its card lists all steps with their tools.
That one word is for the whole sequence with the arguments on the card; the tools of the steps are not asked about
again. Neither are repeats of those tools counted. A step that fails ends the flow, and says which step it was.
What instructions use of a model is told as a note, and not counted among the tokens of the turn.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from ...fsm.canonical import DEEPEST_WRITTEN, canonical, read_json
from ...fsm.errors import Error, Misuse, OutcomeUnknown
from ...fsm.history import UserMessage
from ..models.base import Model, ModelCall, ModelReply
from ..values import as_text, told
from .function import Tool, ToolContext
from .schema import CONTEXT
from .source import Host, Kind, checked_name
from .variables import arguments

_REFERENCE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_-]+|\[\d+\])*)\s*\}\}")
_PART = re.compile(r"\.([A-Za-z0-9_-]+)|\[(\d+)\]")
STEPS = 100


class FlowFailed(Error):
    """A step of a flow did not work; the ones before it ran."""


class Step(BaseModel):
    """One of: call a `tool` with `arguments`; ask the flow's model an `instruction`; `set` a value. Kept as `into`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tool: str = ""
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    instruction: str = ""
    set: JsonValue = None
    into: str = Field(default="", pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$")

    @model_validator(mode="after")
    def _one(self) -> "Step":
        if sum([bool(self.tool), bool(self.instruction), "set" in self.model_fields_set]) != 1:
            raise ValueError("a step needs one of: tool, instruction, set")
        if self.arguments and not self.tool:
            raise ValueError("arguments are those of a tool")
        if "set" in self.model_fields_set and not self.into:
            raise ValueError("what is set needs a name: into")
        return self

    @property
    def told(self) -> str:
        """The step in words, for a person."""
        if self.tool:
            return f"{self.tool} {canonical(self.arguments)}"
        return f"ask the model: {self.instruction}" if self.instruction else f"{self.into} = {canonical(self.set)}"


class FlowData(BaseModel):
    """A flow as it is kept. `result` is what it gives, else the result of its last step.

    `direct`: the result is the reply, no model is asked again.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    description: str = Field(min_length=1)
    variables: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    steps: tuple[Step, ...] = Field(min_length=1, max_length=STEPS)
    result: JsonValue = None
    direct: bool = False
    active: bool = True


class Flow:
    """A flow as a source of one tool, which has the flow's id as its name; `@@flow_ID` means it, too.

    Args:
        data: the flow, as a mapping or the path of a JSON file.
        model: what instructions are asked of.
        needs_approval: ask before each run, also where no step would.

    Raises:
        Misuse: the data is no flow; names the place.
    """

    kind: Kind = "flow"

    def __init__(
        self, data: Mapping[str, Any] | str | Path, *, model: Model | None = None, needs_approval: bool = False
    ) -> None:
        self.data = _read(data)
        self.name = checked_name("flow", self.data.id)
        self.model, self.needs_approval = model, needs_approval
        self.left_out: Sequence[str] = ()
        required = [name for name, about in self.data.variables.items() if "default" not in about]
        self._arguments = arguments(f"flow {self.name}", self.data.variables, required)
        self._check()

    def _check(self) -> None:
        """Every reference must lead to something that is there by then."""
        known = set(self.data.variables)
        for place, step in enumerate(self.data.steps, 1):
            if step.instruction and self.model is None:
                raise Misuse(f"step {place} of flow {self.name!r} asks a model: pass Flow(..., model=...)")
            self._known(f"step {place}", (step.arguments, step.instruction, step.set), known)
            known |= {step.into} - {""}
        self._known("the result", self.data.result, known)

    def _known(self, where: str, value: Any, known: set[str]) -> None:
        for path in _REFERENCE.findall(canonical(value)):
            name = _head(path)
            if name not in known:
                there = ", ".join(sorted(known)) or "none"
                raise Misuse(
                    f"{where} of flow {self.name!r} uses {{{{{path}}}}}, and there is no {name!r} yet: {there}"
                )

    async def open(self, host: Host) -> Sequence[Tool]:
        """The flow as a tool.

        Raises:
            Misuse: it is not active, or a tool that it calls is not there or cannot be a step.
        """
        if not self.data.active:
            raise Misuse('it is not active: look at it, then set "active": true')
        tools = {step.tool: self._found(host, step.tool) for step in self.data.steps if step.tool}

        async def run(**values: Any) -> str:
            return await self._run(host, tools, values.pop(CONTEXT), values)

        steps = "\n".join(f"{place}. {step.told}" for place, step in enumerate(self.data.steps, 1))
        risks = [f"{tool.name}: {tool.risk}" for tool in tools.values() if tool.risk]
        return [
            Tool(
                self.name, f"{self.data.description}\nRuns these steps:\n{steps}", run, self._arguments,
                needs_approval=self.needs_approval or any(tool.needs_approval for tool in tools.values()),
                idempotent=all(tool.idempotent for tool in tools.values()),
                risk="; ".join(risks), context_parameter=CONTEXT, direct=self.data.direct,
            )
        ]  # fmt: skip

    async def close(self) -> None:
        """Nothing is held."""

    def _found(self, host: Host, name: str) -> Tool:
        (full,) = host.registry.resolve([name]) or (name,)
        tool = host.registry.get(full)
        if tool is None:
            raise Misuse(f"it calls {name!r}, which is not there")
        if tool.asks or host.registry.kind(tool.name) == "flow":
            raise Misuse(f"it calls {name!r}, which asks a person or is a flow itself: a step cannot")
        return tool

    async def _run(self, host: Host, tools: Mapping[str, Tool], context: ToolContext, values: dict[str, Any]) -> str:
        last: Any = ""
        key = context.idempotency_key
        for place, step in enumerate(self.data.steps, 1):
            context.idempotency_key = f"{key}:{place}"  # two steps may call one tool
            try:
                last = await self._step(host, tools, context, values, step)
            except OutcomeUnknown as error:
                raise OutcomeUnknown(f"step {place} ({step.tool}) of {len(self.data.steps)}: {error}") from error
            except Exception as error:
                raise FlowFailed(f"step {place} ({step.told}) failed, those before it ran: {told(error)}") from error
            if step.into:
                values[step.into] = last
        return as_text(last if self.data.result is None else filled(self.data.result, values))

    async def _step(
        self, host: Host, tools: Mapping[str, Tool], context: ToolContext, values: dict[str, Any], step: Step
    ) -> Any:
        if step.tool:
            context.introspect(f"{self.name}: {step.tool}")
            return looked_into(await host.perform(tools[step.tool], filled(step.arguments, values), context))
        if step.instruction and self.model is not None:
            return await self._ask(self.model, filled(f"{step.instruction} ", values).strip(), context)
        return filled(step.set, values)

    async def _ask(self, model: Model, text: str, context: ToolContext) -> str:
        stream = model.stream(ModelCall(system="", messages=[UserMessage(text)]))
        async for delta in stream:
            if isinstance(delta, ModelReply):
                used = delta.usage
                context.introspect(f"{self.name}: {model.name}, {used.input_tokens} + {used.output_tokens} tokens")
                return delta.text
        raise FlowFailed("the model gave no answer")


def _read(data: Mapping[str, Any] | str | Path) -> FlowData:
    where = "the flow"
    try:
        if isinstance(data, str | Path):
            where = f"the flow {data}"
            return FlowData.model_validate_json(Path(data).read_bytes())
        return FlowData.model_validate(data)
    except OSError as error:
        raise Misuse(f"{where} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise Misuse(f"{where}: {'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}") from error


def looked_into(text: str) -> Any:
    """A result as the object or list that it is, else as the text."""
    if text[:1] in ("{", "["):
        try:
            return read_json(text, DEEPEST_WRITTEN)
        except ValueError:
            return text
    return text


def filled(value: Any, values: Mapping[str, Any]) -> Any:
    """A value with its references replaced.

    Raises:
        FlowFailed: one leads nowhere.
    """
    if isinstance(value, dict):
        return {key: filled(one, values) for key, one in value.items()}
    if isinstance(value, list):
        return [filled(one, values) for one in value]
    if not isinstance(value, str):
        return value
    if whole := _REFERENCE.fullmatch(value):
        return _at(whole[1], values)
    return _REFERENCE.sub(lambda found: as_text(_at(found[1], values)), value)


def _head(path: str) -> str:
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def _at(path: str, values: Mapping[str, Any]) -> Any:
    name = _head(path)
    found: Any = values[name]
    for key, index in _PART.findall(path[len(name) :]):
        try:
            found = found[key] if key else found[int(index)]
        except (LookupError, TypeError):
            raise FlowFailed(
                f"{{{{{path}}}}} leads nowhere: there is no {key or index!r} in {as_text(found)[:200]}"
            ) from None
    return found
