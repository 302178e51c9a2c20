"""The published JSON Schema of the protocol: `python -m turnlog.server.schema` writes it anew."""

import json
import sys
from pathlib import Path

from pydantic import TypeAdapter

from ..fsm.events import AnyEvent
from .frames import PROTOCOL, ClientFrame, ServerFrame

FILE = Path(__file__).with_name(f"{PROTOCOL}.schema.json")
COMMAND = "python -m turnlog.server.schema"


def text() -> str:
    """The schema: what a client sends, what the server sends, and what the body of each kind of event holds."""
    places, definitions = TypeAdapter.json_schemas(
        [
            ("client", "validation", ClientFrame),
            ("server", "serialization", ServerFrame),
            ("event", "serialization", AnyEvent),
        ]
    )
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": PROTOCOL,
        "description": (
            "Frames of a WebSocket connection, one JSON text each. An event frame's body is an event without its "
            "kind and v, which the frame carries itself."
        ),
        "properties": {name: places[name, mode] for name, mode in sorted(places)},
        **definitions,
    }
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
    sys.stdout.write(f"{FILE}\n")
