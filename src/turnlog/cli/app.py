"""The commands of `turnlog` under one roof, and how their errors are told: what was wrong, then the next step."""

import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated, cast

import typer

from .. import __version__
from . import audit, chat, demo, diagram, fork, replay, serve, sessions, verify
from .text import plain, say

PROGRAM = "turnlog"
# The base of every complaint about arguments; typer gives only this subclass of it a public name.
_Usage = cast("type[Exception]", typer.BadParameter.__base__)

app = typer.Typer(
    name=PROGRAM,
    help="LLM agent conversations as a state machine over an append-only log. Start with `turnlog demo`.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def turnlog(
    context: typer.Context, *, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    """What comes before a command."""
    if version:
        say(f"{PROGRAM} {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        say(context.get_help())
        raise typer.Exit(2)


app.command("demo")(demo.demo)
app.command("serve")(serve.serve)
app.command("chat")(chat.chat)
app.command("sessions")(sessions.sessions)
app.command("replay")(replay.replay)
app.command("fork")(fork.fork)
app.command("audit")(audit.audit)
app.command("verify")(verify.verify)
app.command("diagram")(diagram.diagram)


def run(argv: Sequence[str]) -> int:
    """Run one command; the answer is the exit code. An error is one or two lines on stderr, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(args=list(argv), prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except _Usage as error:
        return _wrong(error)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        # Whoever read us has seen enough; nothing more is to be flushed at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _failed(f"{error}; check the path and its rights")
    except Exception as error:
        # Imported here, since it takes the whole machine with it and `turnlog --help` needs none of that.
        from ..fsm.errors import Error

        if isinstance(error, Error):
            return _failed(str(error))
        if os.environ.get("TURNLOG_DEBUG"):
            raise
        return _failed(f"{type(error).__name__}: {error}\nThis is a fault of turnlog. TURNLOG_DEBUG=1 shows where.")
    return code if isinstance(code, int) else 0


def _failed(text: str) -> int:
    say(f"{PROGRAM}: {plain(text)}", file=sys.stderr)
    return 1


def _wrong(error: BaseException) -> int:
    told = getattr(error, "format_message", lambda: str(error))()
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else PROGRAM
    say(f"{PROGRAM}: {plain(told).rstrip('.')}\nSee `{command} --help`.", file=sys.stderr)
    return 2
