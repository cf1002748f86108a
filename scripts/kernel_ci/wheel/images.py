"""Which container image and which toolchain a cell is built with by cibuildwheel."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Literal

import tomli
from pydantic import Field

from kernel_ci.documents import Model
from kernel_ci.errors import InputError
from kernel_ci.plan import Cell


class Image(Model):
    """A platform's container image, by digest."""

    platform: str
    image: str = Field(pattern=r"@sha256:[0-9a-f]{64}$")


class Toolchain(Model):
    """What a backend's version needs in the container; see `data/images.toml`."""

    backend: str
    version: str
    before: tuple[str, ...]
    compiler: str | None = None
    device: str | None = None
    link: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


class Images(Model):
    """The content of `data/images.toml`; see the comments there."""

    format: Literal[1]
    python: str
    image: tuple[Image, ...]
    toolchain: tuple[Toolchain, ...]

    def image_for(self, platform: str) -> str | None:
        """Return a platform's image, None where builds run outside containers."""
        return next((it.image for it in self.image if it.platform == platform), None)

    def toolchain_for(self, cell: Cell) -> Toolchain | None:
        """Return what a cell needs on top of its image, None where that is nothing.

        Raises:
            InputError: The backend needs a toolchain, and nothing says which for this version.
        """
        found = [it for it in self.toolchain if it.backend == cell.backend]
        for toolchain in found:
            if toolchain.version == cell.backend_version:
                return toolchain
        if cell.backend_version is None:
            return None
        known = ", ".join(it.version for it in found) or "none"
        raise InputError(
            f"cibuildwheel has no toolchain of {cell.backend} {cell.backend_version}",
            where=cell.id,
            fix=f"there are: {known}; build it with --engine host",
        )


@lru_cache(maxsize=1)
def images() -> Images:
    """Return the images and toolchains that come with kernel-ci."""
    text = (files("kernel_ci") / "data" / "images.toml").read_text(encoding="utf-8")
    return Images.model_validate(tomli.loads(text))


#: Platform -> cibuildwheel's platform, its architecture, and the identifier's end.
PLATFORMS = {
    "x86_64-linux": ("linux", "x86_64", "manylinux_x86_64"),
    "aarch64-linux": ("linux", "aarch64", "manylinux_aarch64"),
    "aarch64-darwin": ("macos", "arm64", "macosx_arm64"),
}


def identifier(cell: Cell) -> str:
    """Return cibuildwheel's build identifier of a cell's wheel, e.g. `cp312-macosx_arm64`.

    Raises:
        InputError: cibuildwheel builds nothing for the cell's platform.
    """
    if cell.platform not in PLATFORMS:
        raise InputError(
            f"cibuildwheel builds no {cell.backend} variant for {cell.platform}",
            where=cell.id,
            fix=f"it builds for: {', '.join(PLATFORMS)}",
        )
    return f"{images().python}-{PLATFORMS[cell.platform][2]}"
