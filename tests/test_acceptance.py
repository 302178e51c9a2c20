"""The manifest and the marks agree, in both directions."""

from pathlib import Path

from tests.acceptance import MANIFEST, marked, rows, written

ROWS = 76
FIX = "run `python tests/acceptance.py --write`"


def test_the_manifest_has_each_row_once_with_a_sentence() -> None:
    assert [row["number"] for row in rows()] == list(range(1, ROWS + 1))
    assert all(len(row["sentence"]) > 20 for row in rows())


def test_a_row_has_tests_or_says_why_it_has_none() -> None:
    assert [row["number"] for row in rows() if bool(row["tests"]) == bool(row.get("later"))] == [], FIX


def test_the_manifest_names_exactly_the_tests_that_carry_its_numbers() -> None:
    found = marked()
    assert set(found) <= set(range(1, ROWS + 1)), "a mark has a number that the manifest does not have"
    assert {row["number"]: row["tests"] for row in rows() if row["tests"]} == dict(found), FIX
    assert MANIFEST.read_text(encoding="utf-8") == written(found), FIX


def test_a_mark_is_found_on_functions_classes_modules_and_parameters(tmp_path: Path) -> None:
    file = tmp_path / "tests" / "test_planted.py"
    file.parent.mkdir()
    file.write_text(
        "import pytest\n"
        "pytestmark = pytest.mark.accept(1)\n"
        "@pytest.mark.accept(2)\nasync def test_a(): ...\n"
        "@pytest.mark.accept(3)\nclass TestB:\n"
        "    @pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.accept(4))])\n"
        "    def test_c(self, x): ...\n"
    )
    assert marked(file.parent) == {
        1: ["tests/test_planted.py::test_a", "tests/test_planted.py::TestB::test_c"],
        2: ["tests/test_planted.py::test_a"],
        3: ["tests/test_planted.py::TestB::test_c"],
        4: ["tests/test_planted.py::TestB::test_c"],
    }
