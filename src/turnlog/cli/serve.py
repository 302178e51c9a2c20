"""`turnlog serve`: lets clients in over a WebSocket on this machine."""

import contextlib
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import DEFAULT_DB, Db
from .text import say


def serve(
    *,
    app: Annotated[
        str, typer.Option("--app", help="module:attribute, a list of agents or a function that returns it.")
    ] = "",
    db: Db = DEFAULT_DB,
    host: Annotated[str, typer.Option("--host", help="An address of this machine.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")] = 8765,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="Read the token from here; made when it is missing.")
    ] = None,
    origins: Annotated[
        list[str] | None, typer.Option("--origin", help="A page that may connect, such as https://app.example.")
    ] = None,
) -> None:
    """Serve sessions over a WebSocket. Stop it with Ctrl-C or kill it: every session goes on at the next start."""
    import asyncio

    asyncio.run(_serve(app, db, host, port, token_file, origins or []))


async def _serve(app: str, db: Path, host: str, port: int, token_file: Path | None, origins: list[str]) -> None:
    from ..fsm.errors import Misuse
    from ..server import Principal, Server, Tokens
    from ..server.app import guard
    from .application import build, demo_folder, unasked
    from .waits import first, stopped

    # Everything that may be wrong is looked at before a log is made.
    arguments = _arguments(app, db)
    tokens = Tokens()
    if token_file is not None:
        tokens.add(_token(token_file), Principal("local", all_sessions=True))
    guard(host, tokens)
    engine = build(db, "turnlog serve", arguments)
    asked = stopped()
    if not app:
        say(
            "No --app: the demo's agent answers (its model is scripted, not an LLM) over toy files in "
            f"{demo_folder(db)}"
        )
    if runs := unasked(engine, arguments):
        say(runs)
    async with engine, contextlib.AsyncExitStack() as stack:
        try:
            server = await stack.enter_async_context(Server(engine, host, port, tokens, origins=origins))
        except OSError as error:
            why = error.strerror or str(error)
            raise Misuse(f"cannot listen on {host}:{port}: {why}; choose another --host or --port") from error
        say(f"turnlog serves {db} at {server.url}")
        say(f"token in {token_file}" if token_file is not None else f"token {server.token}", flush=True)
        await first(asked, engine.failed)
    if engine.failure is not None:
        raise engine.failure


def _arguments(app: str, db: Path) -> dict[str, Any]:
    from .application import demo_folder, engine_arguments

    if app:
        return engine_arguments(app)
    from ..demo.agent import demo_agent

    return {"agents": [demo_agent(demo_folder(db))]}


def _token(path: Path) -> str:
    from ..server import fresh_token

    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(fresh_token() + "\n", encoding="ascii")
    return path.read_text(encoding="utf-8").strip()
