"""Packs the links of src/turnlog into the sdist: setuptools drops them, or packs what they point to twice."""

from collections.abc import Sequence
from pathlib import Path

from setuptools import setup
from setuptools.command.sdist import sdist


class SdistWithLinks(sdist):
    """The ordinary sdist, and in it the four links as links."""

    def make_release_tree(self, base_dir: str, files: Sequence[str]) -> None:
        """Make the tree that is packed, then add the links."""
        super().make_release_tree(base_dir, files)
        for name in ("fsm", "store", "engine", "server"):
            link = Path(base_dir, "src", "turnlog", name)
            if not link.is_symlink():
                link.symlink_to(Path("..", "..", name))


setup(cmdclass={"sdist": SdistWithLinks})
