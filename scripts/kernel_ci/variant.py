"""The Hub's variant names, e.g. `tvm-ffi01-cu130-x86_64-linux`.

The grammar is that of the `kernels` client (0.17.2). Names that the client would take
for something else are refused here: it splits `rocm710` into ROCm 71.0 and `cu1210` into
CUDA 121.0, because it takes the last digit as the minor version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernel_ci.errors import InputError

#: Backend -> the prefix of its compute part; a backend with a version appends it.
COMPUTE_PREFIX = {"cpu": "cpu", "cuda": "cu", "rocm": "rocm", "xpu": "xpu", "metal": "metal"}
VERSIONED = frozenset({"cuda", "rocm", "xpu"})
BACKENDS = tuple(COMPUTE_PREFIX)
ARCHS = ("x86_64", "aarch64")
SYSTEMS = ("linux", "darwin", "windows")

#: Suffix of a shared library on each system.
LIBRARY_SUFFIX = {"linux": ".so", "darwin": ".dylib", "windows": ".dll"}

#: Digits of the major version that each backend has had for years (CUDA 10 to 13, ROCm 5
#: to 7, oneAPI 2024 to 2026). More digits mean that a two-digit minor was meant.
_MAJOR_DIGITS = {"cuda": 2, "rocm": 1, "xpu": 4}

_FRAMEWORK = re.compile(r"tvm-ffi([0-9])([0-9]{1,4})")
_VERSION = re.compile(r"([1-9][0-9]*)\.(0|[1-9][0-9]*)")


@dataclass(frozen=True, order=True)
class Variant:
    """One build of a kernel.

    Attributes:
        backend: One of `BACKENDS`.
        backend_version: `<major>.<minor>` for CUDA, ROCm and XPU, else None.
        arch: CPU architecture, `x86_64` or `aarch64` (never `arm64`).
        os: `linux`, `darwin` or `windows`.
        tvm_ffi: Major and minor version of tvm-ffi that the name claims.

    Raises:
        InputError: A part is unknown, or the client would misread the name. A name alone
            cannot tell ROCm 7.10 from 71.0, so major versions of an unusual length are too.
    """

    backend: str
    backend_version: str | None
    arch: str
    os: str
    tvm_ffi: tuple[int, int] = (0, 1)

    def __post_init__(self) -> None:
        def refuse(what: str, fix: str) -> InputError:
            return InputError(what, where="variant", fix=fix)

        if self.backend not in COMPUTE_PREFIX:
            raise refuse(f"unknown backend {self.backend!r}", f"use one of: {', '.join(BACKENDS)}")
        if self.arch not in ARCHS:
            hint = "aarch64" if self.arch == "arm64" else " or ".join(ARCHS)
            raise refuse(f"unknown architecture {self.arch!r}", f"write {hint}")
        if self.os not in SYSTEMS:
            raise refuse(f"unknown system {self.os!r}", f"use one of: {', '.join(SYSTEMS)}")
        if self.backend == "metal" and self.os != "darwin":
            raise refuse(f"metal does not exist on {self.os}", "use darwin")
        if not 0 <= self.tvm_ffi[0] <= 9 or self.tvm_ffi[1] < 0:
            raise refuse(
                f"tvm-ffi {self.tvm_ffi[0]}.{self.tvm_ffi[1]} has no name",
                "the name holds one digit of the major version",
            )
        if (self.backend in VERSIONED) != (self.backend_version is not None):
            needs = "needs a version" if self.backend in VERSIONED else "has no version"
            raise refuse(f"{self.backend} {needs}", "write e.g. cu130 for CUDA 13.0, or cpu")
        if self.backend_version is not None:
            found = _VERSION.fullmatch(self.backend_version)
            if found is None:
                raise refuse(
                    f"{self.backend} version {self.backend_version!r} is not <major>.<minor>",
                    "write e.g. 13.0",
                )
            if len(found[2]) > 1:
                raise refuse(
                    f"{self.backend} {self.backend_version} has a two-digit minor version, which"
                    f" the kernels client would read as another version from {self.compute!r}",
                    "use a release with a one-digit minor version",
                )
            digits = _MAJOR_DIGITS[self.backend]
            if len(found[1]) != digits:
                raise refuse(
                    f"{self.compute!r} would be read by the kernels client as"
                    f" {self.backend} {self.backend_version}, which is no current release",
                    f"{self.backend} has a major version of {digits} digit{'s' * (digits > 1)}"
                    " and a minor version of one",
                )

    @property
    def compute(self) -> str:
        """The compute part of the name, e.g. `cu130`."""
        return COMPUTE_PREFIX[self.backend] + (self.backend_version or "").replace(".", "")

    @property
    def platform(self) -> str:
        """`<arch>-<os>`."""
        return f"{self.arch}-{self.os}"

    @property
    def library_suffix(self) -> str:
        """Suffix of a shared library, with its dot."""
        return LIBRARY_SUFFIX[self.os]

    def __str__(self) -> str:
        major, minor = self.tvm_ffi
        return f"tvm-ffi{major}{minor}-{self.compute}-{self.arch}-{self.os}"

    @classmethod
    def parse(cls, name: str) -> Variant:
        """Return the variant that a name means to the `kernels` client.

        Raises:
            InputError: The name is not one of a tvm-ffi variant, or is ambiguous.
        """
        parts = name.split("-")
        framework = _FRAMEWORK.fullmatch("-".join(parts[:2]))
        if framework is None or len(parts) != 5:
            raise InputError(
                f"{name!r} is not the name of a tvm-ffi variant",
                where="variant",
                fix="write tvm-ffi<major><minor>-<compute>-<arch>-<os>,"
                " e.g. tvm-ffi01-cu130-x86_64-linux",
            )
        backend, version = _parse_compute(parts[2])
        variant = cls(backend, version, parts[3], parts[4], (int(framework[1]), int(framework[2])))
        if str(variant) != name:
            raise InputError(f"{name!r} is not canonical", where="variant", fix=f"write {variant}")
        return variant


def _parse_compute(text: str) -> tuple[str, str | None]:
    """Split e.g. `cu130` into backend and version, as the client does: one digit of minor."""
    for backend, prefix in COMPUTE_PREFIX.items():
        if backend not in VERSIONED:
            if text == prefix:
                return backend, None
        elif found := re.fullmatch(rf"{prefix}([0-9]+)([0-9])", text):
            return backend, f"{found[1]}.{found[2]}"
    raise InputError(
        f"unknown compute part {text!r}",
        where="variant",
        fix="write cpu, metal, cu<major><minor>, rocm<major><minor> or xpu<year><minor>",
    )
