"""An MCP server without any library, which says whatever it is told to: argv[1] is JSON of the answers by method.

An answer is a list for calls of the method one after the other (the last one stays); text in it that is no JSON-RPC
is sent as it is before the answer.
"""

import json
import sys
from typing import Any


def main() -> None:
    """Answer line by line."""
    answers: dict[str, list[Any]] = json.loads(sys.argv[1])
    answers.setdefault("initialize", [{
        "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                   "serverInfo": {"name": "raw", "version": "1"}},
    }])  # fmt: skip
    unknown = [{"error": {"code": -32601, "message": "no such method"}}]
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        left = answers.get(asked["method"], unknown)
        answer = dict(left[0] if len(left) == 1 else left.pop(0))
        if noise := answer.pop("noise", ""):
            print(noise, flush=True)
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)


if __name__ == "__main__":
    main()
