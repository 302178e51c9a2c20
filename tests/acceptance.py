"""The manifest of what turnlog must show: `tests/acceptance.toml` against the marks `accept(n)` in the tests.

Run `python tests/acceptance.py --write` to enter the marked tests into the manifest; sentences and `later` are kept.
"""

import ast
import json
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MANIFEST = HERE / "acceptance.toml"
HEAD = MANIFEST.read_text(encoding="utf-8").split("\n\n", 1)[0]


def rows() -> list[dict[str, Any]]:
    """The rows of the manifest."""
    found: list[dict[str, Any]] = tomllib.loads(MANIFEST.read_text(encoding="utf-8"))["row"]
    return found


def marked(root: Path = HERE, mark: str = "accept") -> dict[int, list[str]]:
    """Test ids by the number that they are marked with."""
    found: dict[int, list[str]] = defaultdict(list)
    for path in sorted(root.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        name = path.relative_to(root.parent).as_posix()
        everywhere = [
            number
            for node in tree.body
            if isinstance(node, ast.Assign)
            and any(getattr(target, "id", "") == "pytestmark" for target in node.targets)
            for number in _numbers(node.value, mark)
        ]
        for test, numbers in _tests(tree, mark):
            for number in dict.fromkeys((*everywhere, *numbers)):
                found[number].append(f"{name}::{test}")
    return found


def _tests(tree: ast.Module, mark: str) -> Iterator[tuple[str, list[int]]]:
    for node in tree.body:
        outer = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        above = _decorated(node, mark) if isinstance(node, ast.ClassDef) else []
        for inner in outer:
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and inner.name.startswith("test"):
                yield prefix + inner.name, above + _decorated(inner, mark)
            elif isinstance(inner, ast.Assign) and _is_state_machine(inner):
                yield prefix + inner.targets[0].id, above  # type: ignore[attr-defined]  # checked by _is_state_machine


def _is_state_machine(node: ast.Assign) -> bool:
    """`TestX = Machine.TestCase`, as hypothesis has it."""
    target = node.targets[0]
    return isinstance(target, ast.Name) and target.id.startswith("Test") and isinstance(node.value, ast.Attribute)


def _decorated(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, mark: str) -> list[int]:
    return [number for decorator in node.decorator_list for number in _numbers(decorator, mark)]


def _numbers(node: ast.AST, mark: str) -> list[int]:
    """Numbers of every `pytest.mark.<mark>(...)` inside, so in lists and parameters too."""
    return [
        argument.value
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == mark
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, int)
    ]


def written(found: dict[int, list[str]]) -> str:
    """The manifest with these tests."""
    parts = [HEAD]
    for row in rows():
        tests = found.get(row["number"], [])
        lines = [
            "[[row]]",
            f"number = {row['number']}",
            f"sentence = {json.dumps(row['sentence'], ensure_ascii=False)}",
        ]
        lines += ["tests = ["] + [f'    "{test}",' for test in tests] + ["]"] if tests else ["tests = []"]
        if not tests:
            lines.append(f"later = {json.dumps(row.get('later', 'not built yet'))}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    text = written(marked())
    if "--write" in sys.argv:
        MANIFEST.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
