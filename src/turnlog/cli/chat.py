"""`turnlog chat`: a conversation in the terminal, with approvals, in this process."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import DEFAULT_DB, Db
from .text import say

if TYPE_CHECKING:
    from ..engine import Engine

SCRIPTED = "scripted"


def chat(
    *,
    model: Annotated[
        str, typer.Option("--model", help="openai:NAME, anthropic:NAME, or scripted (the demo's, no LLM).")
    ] = "",
    base_url: Annotated[
        str | None, typer.Option("--base-url", help="An OpenAI-compatible server, such as http://127.0.0.1:11434/v1.")
    ] = None,
    tools: Annotated[str, typer.Option("--tools", help="module:attribute, a list of tools for the model.")] = "",
    app: Annotated[str, typer.Option("--app", help="module:attribute, agents in place of --model and --tools.")] = "",
    role: Annotated[str, typer.Option("--role", help="What the model is told about itself.")] = "",
    session: Annotated[str, typer.Option("--session", help="Go on with this session.")] = "",
    db: Db = DEFAULT_DB,
) -> None:
    """Talk with a model; its calls are asked about here. Leave with Ctrl-D or /quit, go on with --session."""
    import asyncio

    from .application import build, demo_folder, unasked

    if not model and not app:
        raise typer.BadParameter(
            "name a model: --model openai:NAME or anthropic:NAME (pip install 'turnlog[models]', and its key in "
            "OPENAI_API_KEY or ANTHROPIC_API_KEY), --base-url URL --model NAME for a local server, or --model scripted",
            param_hint="--model",
        )
    options = {"--model": model, "--base-url": base_url, "--tools": tools, "--app": app, "--role": role}
    given = {name: value for name, value in options.items() if value}
    for leading in ("--app", "--model" if model == SCRIPTED else ""):
        if leading in given and len(given) > 1:
            others = " and ".join(name for name in given if name != leading)
            raise typer.BadParameter(f"it brings its own agents: leave out {others}", param_hint=leading)
    if session and not db.exists():
        from ..fsm.errors import UnknownSession

        raise UnknownSession(f"no session has the id {session!r}: there is no log at {db}, check the path")

    async def run() -> None:
        from .talk import Talk

        arguments = _arguments(db, model, base_url, tools, app, role)
        engine = build(db, "turnlog chat", arguments)
        try:
            if model == SCRIPTED:
                say(f"The model is scripted, not an LLM; its tools work on toy files in {demo_folder(db)}")
            if runs := unasked(engine, arguments):
                say(runs)
            async with engine:
                await Talk(engine, db, [word for option in given.items() for word in option]).run(session)
        finally:
            await _close(engine)

    asyncio.run(run())


def _arguments(db: Path, model: str, base_url: str | None, tools: str, app: str, role: str) -> dict[str, Any]:
    from ..engine import Agent
    from ..engine.models.pydantic_ai import open_model
    from .application import demo_folder, engine_arguments, load_tools

    if app:
        return engine_arguments(app)
    if model == SCRIPTED:
        from ..demo.agent import demo_agent

        return {"agents": [demo_agent(demo_folder(db))]}
    own = load_tools(tools) if tools else ()
    return {"agents": [Agent("@agent", open_model(model, base_url=base_url), role=role, tools=own)]}


async def _close(engine: "Engine") -> None:
    for agent in engine.agents:
        close = getattr(agent.model, "aclose", None)
        if close is not None:
            await close()
