"""What a library may demand of the system: read from data files."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files

import tomli

from kernel_ci.documents import Model


class _Unnumbered(Model):
    allowed: tuple[str, ...]


class Manylinux(Model):
    """A manylinux policy.

    Attributes:
        name: Its tag.
        maxima: Newest version of each family of ELF symbol versions.
        unnumbered: Versions without a number that are allowed.
    """

    name: str
    maxima: dict[str, str]
    unnumbered: _Unnumbered

    def excess(self, version: str) -> str | None:
        """Return what is too new about an ELF symbol version, None if nothing is.

        Families that the policy does not name (of CUDA's or other libraries) are the
        business of the allow-list of libraries.
        """
        family, _, number = version.partition("_")
        if family not in self.maxima or version in self.unnumbered.allowed:
            return None
        maximum = self.maxima[family]
        if not number.replace(".", "").isdigit():
            return f"{version} is not part of {self.name}"
        if _numbers(number) > _numbers(maximum):
            return f"{version} is newer than {family}_{maximum}"
        return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part)


class SystemLibrary(Model):
    """Libraries of a system that a backend may need.

    Attributes:
        system: As in a variant's name.
        backend: The backend that may need them, None for all.
        names: Patterns of their names.
        symbols: Patterns of what they provide without an ELF symbol version.
    """

    system: str
    backend: str | None = None
    names: tuple[str, ...]
    symbols: tuple[str, ...] = ()

    def is_one(self, library: str, system: str) -> bool:
        """Tell whether a needed library is one of these (Windows ignores case)."""
        name = library.lower() if system == "windows" else library
        return any(fnmatchcase(name, pattern) for pattern in self._patterns(system))

    def _patterns(self, system: str) -> tuple[str, ...]:
        return tuple(p.lower() for p in self.names) if system == "windows" else self.names

    def provides(self, symbol: str) -> bool:
        """Tell whether these provide an unversioned symbol."""
        return any(fnmatchcase(symbol, pattern) for pattern in self.symbols)


class Foreign(Model):
    """Symbols that people meet and that nothing provides, with the reason."""

    symbols: tuple[str, ...]
    why: str


class Systems(Model):
    """The content of `data/system_libraries.toml`."""

    macos_minimum: dict[str, str]
    library: tuple[SystemLibrary, ...]
    foreign: tuple[Foreign, ...]

    def allowed(self, library: str, system: str, backend: str | None) -> bool:
        """Tell whether a backend may need a library; None allows those of all backends."""
        return any(
            entry.system == system
            and (entry.backend is None or backend is None or entry.backend == backend)
            and entry.is_one(library, system)
            for entry in self.library
        )

    def backend_of(self, library: str, system: str) -> str | None:
        """Return the backend whose library this is, None for none in particular."""
        return next(
            (e.backend for e in self.library if e.system == system and e.is_one(library, system)),
            None,
        )

    def why_foreign(self, symbol: str) -> str | None:
        """Return what is known about a symbol that nothing provides."""
        return next(
            (f.why for f in self.foreign if any(fnmatchcase(symbol, p) for p in f.symbols)), None
        )


def _load(name: str) -> dict[str, object]:
    return tomli.loads((files("kernel_ci") / "data" / name).read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def manylinux() -> Manylinux:
    """Return the policy for Linux libraries."""
    return Manylinux.model_validate(_load("manylinux_2_28.toml"))


@lru_cache(maxsize=1)
def systems() -> Systems:
    """Return the allow-lists of libraries."""
    return Systems.model_validate(_load("system_libraries.toml"))
