"""What is built is what is tracked: every file of the packages once, under its installed name."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("fsm", "store", "engine", "server")
PACKAGES = ("fsm", "store", "engine", "engine.models", "engine.tools", "server", "cli")
LINKS = {f"src/turnlog/{name}": f"../../{name}" for name in FOLDERS}


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def tracked() -> list[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("what is tracked is known in a git clone only")
    names = run("git", "ls-files", "-z", cwd=ROOT).split("\0")
    return [name for name in names if name and os.path.lexists(ROOT / name)]


def installed(name: str) -> str | None:
    """The name in the wheel of a tracked file; None: it is not shipped."""
    head, _, rest = name.partition("/")
    if head in FOLDERS:
        return f"turnlog/{name}"
    return rest if name.startswith("src/turnlog/") and name not in LINKS else None


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of a clean copy of the tracked files, and the wheel built from that sdist."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in tracked():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(tree), cwd=out)
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


def test_the_sdist_holds_every_tracked_file_once_and_links_as_links(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        members = [member for member in archive.getmembers() if not member.isdir()]
    names = Counter(member.name.partition("/")[2] for member in members)
    made = {"PKG-INFO", "setup.cfg", *(name for name in names if name.startswith("turnlog.egg-info/"))}
    assert {name for name, count in names.items() if count > 1} == set()
    assert sorted(set(names) - made) == sorted(tracked())
    links = {member.name.partition("/")[2]: member.linkname for member in members if member.issym()}
    assert links == LINKS


def test_the_wheel_holds_every_tracked_file_of_the_packages_once(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
    shipped = [name for name in names if ".dist-info/" not in name]
    assert sorted(shipped) == sorted(filter(None, map(installed, tracked())))
    assert "turnlog/py.typed" in shipped
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_wheel_has_no_top_level_name_but_its_own(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert tops == {"turnlog", "turnlog-0.1.0.dist-info"}


def test_the_installed_wheel_imports_from_where_it_was_installed(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(target),
    )
    run(*pip, str(wheel), cwd=tmp_path)
    modules = ", ".join(["turnlog", *(f"turnlog.{name}" for name in PACKAGES)])
    code = (
        f"import sys; sys.path.insert(0, {str(target)!r}); import {modules}\n"
        "print(*(module.__file__ for module in sys.modules.values()"
        " if module.__name__.split('.')[0] == 'turnlog'), sep='\\n')"
    )
    loaded = run(sys.executable, "-I", "-c", code, cwd=tmp_path).splitlines()
    assert len(loaded) > len(PACKAGES)
    assert [name for name in loaded if not name.startswith(f"{target}{os.sep}turnlog{os.sep}")] == []
    scripts = (target / "turnlog-0.1.0.dist-info" / "entry_points.txt").read_text(encoding="utf-8")
    assert "turnlog = turnlog.cli:main" in scripts
