"""A kernel: its `build.toml` (edition 5) and the files that it names.

The format is that of huggingface/kernels' kernel-builder, read in full. Upstream's parser
lets a number of faults through that only show when something is built or loaded; they are
refused here, with the file, the key and the fix.
"""

from __future__ import annotations

import difflib
import os
import posixpath
import re
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

import tomli
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, Url

from kernel_ci.bench import settings
from kernel_ci.bench.settings import BenchSettings
from kernel_ci.errors import InputError
from kernel_ci.variant import BACKENDS

FILE = "build.toml"
EDITION = 5

Backend = Literal["cpu", "cuda", "metal", "rocm", "xpu"]

#: Known to the format, but without a tvm-ffi build.
UNSUPPORTED_BACKENDS = ("cann", "neuron", "tpu")

#: Names that `depends` may hold (kernels-data 0.16.2).
DEPENDENCIES = (
    "cutlass_2_10",
    "cutlass_3_5",
    "cutlass_3_6",
    "cutlass_3_8",
    "cutlass_3_9",
    "cutlass_4_0",
    "cutlass_4_4",
    "cutlass_4_5",
    "sycl_tla",
    "metal-cpp",
    "torch",
)

#: Names that `python-depends` may hold; any other makes *loading* fail (kernels 0.17.2).
PYTHON_DEPENDENCIES: dict[str, tuple[str, ...]] = {
    "general": ("einops", "helion", "tvm-ffi"),
    "cuda": ("nvidia-cutlass-dsl",),
    "neuron": ("nki",),
    "tpu": (),
    "xpu": ("onednn",),
}

#: Sources that a compiler takes, by suffix, and the backends that take them (None: all).
COMPILED_SUFFIXES: dict[str, frozenset[str] | None] = {
    ".c": None,
    ".cc": None,
    ".cpp": None,
    ".cxx": None,
    ".cu": frozenset({"cuda", "rocm"}),
    ".hip": frozenset({"rocm"}),
    ".m": frozenset({"metal"}),
    ".mm": frozenset({"metal"}),
    ".metal": frozenset({"metal"}),
}
#: Files that may stand among the sources because others include them.
HEADER_SUFFIXES = frozenset({".h", ".hh", ".hpp", ".hxx", ".cuh", ".inc", ".inl", ".def"})

CAPABILITY = re.compile(r"[1-9][0-9]?\.[0-9][af]?(\+PTX)?")
GFX = re.compile(r"gfx[0-9]{1,2}[0-9a-f]{2}")
#: The Hub's rules (`huggingface_hub.utils.validate_repo_id`), with the organisation.
_REPO_ID = re.compile(
    r"(?!.*(--|\.\.))\w([\w.-]*\w)?/\w([\w.-]{0,94}\w)?(?<!\.git)", flags=re.ASCII
)
#: What git takes as a branch, without `/`.
_BRANCH = re.compile(r"(?!.*\.\.)\w[\w.-]*(?<!\.)(?<!\.lock)", flags=re.ASCII)
#: Upstream's rule and a limit: the Hub's for repositories, and file names end at 255 bytes.
_NAME = re.compile(r"[a-z][-a-z0-9]{0,94}[a-z0-9]")
#: Of CUDA; upstream's parser wants exactly two numbers (kernels-data 0.16.2).
_VERSION = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}")
_GIT_SCHEMES = frozenset({"https", "http", "git", "ssh", "git+ssh", "git+https", "git+http"})
#: The largest number of TOML; upstream's parser takes no other.
_MAX_NUMBER = 2**63 - 1


class _Table(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=lambda name: name.replace("_", "-"),
    )


class KernelDependency(_Table):
    """Another kernel that this one loads; exactly one of version and revision is set."""

    repo_id: str
    version: int | None = Field(default=None, ge=0, le=_MAX_NUMBER)
    revision: str | None = Field(default=None, min_length=1)


class Hub(_Table):
    """Where the kernel is published."""

    repo_id: str | None = None
    branch: str | None = None


class BackendGeneral(_Table):
    """What one backend needs besides `[general]`."""

    kernel_depends: list[KernelDependency] = Field(default_factory=list)
    python_depends: list[str] = Field(default_factory=list)


class CudaGeneral(BackendGeneral):
    """`[general.cuda]`."""

    minver: str | None = None
    maxver: str | None = None


class TpuGeneral(_Table):
    """`[general.tpu]`."""

    python_depends: list[str] = Field(default_factory=list)


class General(_Table):
    """`[general]`."""

    name: str
    version: int = Field(ge=0, le=_MAX_NUMBER)
    edition: int | None = None
    license: str
    backends: list[str]
    upstream: str | None = None
    source: str | None = None
    python_depends: list[str] = Field(default_factory=list)
    kernel_depends: list[KernelDependency] = Field(default_factory=list)
    hub: Hub = Field(default_factory=Hub)
    cuda: CudaGeneral = Field(default_factory=CudaGeneral)
    xpu: BackendGeneral = Field(default_factory=BackendGeneral)
    neuron: BackendGeneral = Field(default_factory=BackendGeneral)
    tpu: TpuGeneral = Field(default_factory=TpuGeneral)


class TvmFfi(_Table):
    """`[tvm-ffi]`: the bindings, compiled into every variant."""

    src: list[str]
    include: list[str] = Field(default_factory=list)
    pyext: list[str] = Field(default_factory=list)
    cxx_flags: list[str] = Field(default_factory=list)


class _Component(_Table):
    depends: list[str]
    src: list[str]
    include: list[str] = Field(default_factory=list)
    cxx_flags: list[str] = Field(default_factory=list)


class CpuComponent(_Component):
    """A `[kernel.<name>]` of backend cpu."""

    backend: Literal["cpu"]


class MetalComponent(_Component):
    """A `[kernel.<name>]` of backend metal."""

    backend: Literal["metal"]


class CudaComponent(_Component):
    """A `[kernel.<name>]` of backend cuda."""

    backend: Literal["cuda"]
    cuda_capabilities: list[str] | None = None
    cuda_flags: list[str] = Field(default_factory=list)
    cuda_minver: str | None = None


class RocmComponent(_Component):
    """A `[kernel.<name>]` of backend rocm."""

    backend: Literal["rocm"]
    rocm_archs: list[str] | None = None
    hip_flags: list[str] = Field(default_factory=list)


class XpuComponent(_Component):
    """A `[kernel.<name>]` of backend xpu."""

    backend: Literal["xpu"]
    sycl_flags: list[str] = Field(default_factory=list)


Component = CpuComponent | CudaComponent | MetalComponent | RocmComponent | XpuComponent
_COMPONENTS: dict[str, type[_Component]] = {
    get_args(model.model_fields["backend"].annotation)[0]: model for model in get_args(Component)
}


@dataclass(frozen=True)
class Fault:
    """One thing wrong with a `build.toml`.

    Attributes:
        key: Dotted path of the key, e.g. `kernel.relu.src`; empty for the whole file.
        what: What is wrong.
        fix: What to write instead.
    """

    key: str
    what: str
    fix: str


class KernelError(InputError):
    """A `build.toml` with faults; the message has all of them."""

    def __init__(self, path: Path, faults: list[Fault]):
        self.faults = faults
        blocks = []
        for fault in faults:
            # A quoted key can hold anything, also what a terminal or a CI log would obey.
            key = fault.key if fault.key.isprintable() else ascii(fault.key)
            place = f"{path}: {key}" if key else str(path)
            blocks.append(f"{place}: {fault.what}\n  fix: {fault.fix}")
        super().__init__("\n".join(blocks))


@dataclass(frozen=True)
class Kernel:
    """A kernel that is ready to be planned.

    Attributes:
        path: The kernel's folder, absolute.
        general: `[general]`.
        tvm_ffi: `[tvm-ffi]`.
        components: `[kernel.<name>]` by name, in the order of the file.
        notices: What the author should know though nothing is wrong.
        bench: What the author asks of the benchmarks.
    """

    path: Path
    general: General
    tvm_ffi: TvmFfi
    components: dict[str, Component]
    notices: tuple[str, ...] = ()
    bench: BenchSettings = field(default_factory=BenchSettings)

    @property
    def name(self) -> str:
        """The kernel's name, e.g. `relu-tvm-ffi`."""
        return self.general.name

    @property
    def python_name(self) -> str:
        """The name of its Python package."""
        return self.name.replace("-", "_")

    @property
    def package(self) -> Path:
        """The folder of its Python package."""
        return self.path / "tvm-ffi-ext" / self.python_name

    @property
    def tests(self) -> Path:
        """The folder of its test suite; it need not exist."""
        return self.path / "tests"

    @property
    def backends(self) -> tuple[str, ...]:
        """The backends that the author lists."""
        return tuple(self.general.backends)

    @property
    def branch(self) -> str:
        """The Hub branch that a release goes to."""
        return self.general.hub.branch or f"v{self.general.version}"

    @property
    def compiled(self) -> list[str]:
        """Every file that `build.toml` names as a source, relative to the kernel's folder."""
        parts = [self.tvm_ffi, *self.components.values()]
        return [name for part in parts for name in part.src]

    def components_of(self, backend: str, version: str | None = None) -> dict[str, Component]:
        """Return the components that a variant of this backend is made of.

        Args:
            backend: The backend.
            version: The toolkit's version; leaves out components whose `cuda-minver` is newer.
        """
        return {
            name: component
            for name, component in self.components.items()
            if component.backend == backend and _is_new_enough(component, version)
        }

    def python_depends(self, backend: str) -> list[str]:
        """Return what metadata.json lists as `python-depends` for a backend."""
        special = getattr(self.general, backend, None)
        return [*self.general.python_depends, *getattr(special, "python_depends", [])]

    def kernel_depends(self, backend: str) -> list[dict[str, str | int]]:
        """Return what metadata.json lists as `kernel-depends` for a backend."""
        special = getattr(self.general, backend, None)
        found = [*self.general.kernel_depends, *getattr(special, "kernel_depends", [])]
        return [d.model_dump(by_alias=True, exclude_none=True) for d in found]

    @classmethod
    def read(cls, path: Path) -> Kernel:
        """Read the kernel in a folder (or of a `build.toml`).

        Raises:
            InputError: No such folder or file.
            KernelError: The file has faults, or names files that are not there.
        """
        root = path.parent if path.name == FILE else path
        file = root / FILE
        folder_wanted = f"name a folder with a {FILE}"
        try:
            data = tomli.loads(file.read_bytes().decode("utf-8-sig"))
        except FileNotFoundError:
            if not root.is_dir():
                raise InputError("no such folder", where=root, fix=folder_wanted) from None
            raise InputError(
                f"has no {FILE}", where=root, fix=f"write {FILE}; `kernel-ci init NAME` makes one"
            ) from None
        except OSError as error:
            raise InputError(
                f"cannot be read: {error.strerror}", where=file, fix=folder_wanted
            ) from None
        except UnicodeDecodeError as error:
            raise KernelError(
                file, [Fault("", f"is not UTF-8 (byte {error.start})", "save the file as UTF-8")]
            ) from None
        except tomli.TOMLDecodeError as error:
            raise KernelError(
                file, [Fault("", f"is not TOML: {error}", "correct the line that is named")]
            ) from None
        except (ValueError, RecursionError) as error:
            raise KernelError(
                file,
                [Fault("", f"cannot be parsed: {error}", "remove huge numbers and deep nesting")],
            ) from None
        return cls.parse(data, root=root.resolve(), file=file)

    @classmethod
    def parse(cls, data: dict[str, Any], *, root: Path, file: Path) -> Kernel:
        """Check a decoded `build.toml` against the format and the folder it is for.

        Args:
            data: The decoded file.
            root: The kernel's folder, resolved.
            file: The file's name, for messages.

        Raises:
            KernelError: With every fault that was found.
            InputError: Its `kernel-ci.toml` has faults.
        """
        notices, faults = _check_edition(data)
        if faults:
            raise KernelError(file, faults)
        faults += _check_top_level(data)
        general = _validate(General, data.get("general", {}), "general", faults)
        tvm_ffi = (
            _validate(TvmFfi, data["tvm-ffi"], "tvm-ffi", faults) if "tvm-ffi" in data else None
        )
        components: dict[str, Component] = {}
        tables = data.get("kernel", {})
        if isinstance(tables, dict):
            for name, table in tables.items():
                component = _component(name, table, faults)
                if component is not None:
                    components[name] = component
        else:
            faults.append(Fault("kernel", "is not a table", "write [kernel.<name>] sections"))
        if faults or general is None or tvm_ffi is None:
            raise KernelError(file, faults)
        bench = settings.read(root)
        kernel = cls(root, general, tvm_ffi, components, tuple(notices), bench)
        faults = [*_check_general(general), *_check_components(kernel), *_check_files(kernel)]
        if faults:
            raise KernelError(file, faults)
        return kernel


def _check_edition(data: dict[str, Any]) -> tuple[list[str], list[Fault]]:
    """Tell which edition a file has; only 5 and (with a notice) 4 are read."""
    general = data.get("general")
    if not isinstance(general, dict):
        return [], [
            Fault(
                "general",
                "is not a table" if "general" in data else "is missing",
                "add a [general] section with name, version, edition = 5, license and backends",
            )
        ]
    if "edition" in general:
        edition = general["edition"]
        if edition == EDITION and isinstance(edition, int) and not isinstance(edition, bool):
            return [], []
        return [], [
            Fault(
                "general.edition",
                f"{edition!r} is not supported",
                "write `edition = 5` (a number); files of edition 4 have no such key",
            )
        ]
    frameworks = {"torch", "torch-noarch", "tvm-ffi"} & data.keys()
    missing = [key for key in ("version", "license") if key not in general]
    if not frameworks or missing:
        reason = f"no general.{missing[0]}" if missing else "no framework section"
        return [], [
            Fault(
                "general.edition",
                f"is missing, and the file looks like edition 3 or older ({reason})",
                "migrate it: set `edition = 5`, `version` and `license` in [general] and add a"
                " [tvm-ffi] section (`kernel-builder update-build` does most of it)",
            )
        ]
    newer = [key for key in ("kernel-depends", "tpu") if key in general]
    newer += [
        f"{backend}.kernel-depends"
        for backend in ("cuda", "neuron", "xpu")
        if isinstance(general.get(backend), dict) and "kernel-depends" in general[backend]
    ]
    if newer:
        return [], [
            Fault(f"general.{newer[0]}", "needs edition 5", "add `edition = 5` to [general]")
        ]
    notice = f"{FILE} is of edition 4, read as 5; add `edition = 5` to [general] to upgrade it"
    return [notice], []


def _check_top_level(data: dict[str, Any]) -> list[Fault]:
    known = ("general", "kernel", "tvm-ffi", "torch", "torch-noarch")
    faults = [_unknown_key(key, "", known) for key in data if key not in known]
    frameworks = [key for key in ("tvm-ffi", "torch", "torch-noarch") if key in data]
    if frameworks != ["tvm-ffi"]:
        if not frameworks:
            what = "is missing"
        elif "tvm-ffi" in frameworks:
            what = f"stands beside [{frameworks[-1]}]; a kernel has one framework"
        else:
            what = f"is missing; [{frameworks[0]}] kernels are not built by kernel-ci"
        faults.append(
            Fault("tvm-ffi", what, "have one section [tvm-ffi] with `src`, and no [torch…] section")
        )
    return faults


def _component(name: str, table: Any, faults: list[Fault]) -> Component | None:
    key = f"kernel.{name}"
    if not re.fullmatch(r"[A-Za-z_][\w-]*", name, flags=re.ASCII):
        faults.append(Fault(key, "has a malformed name", "use letters, digits, `_` and `-`"))
        return None
    if not isinstance(table, dict):
        faults.append(Fault(key, "is not a table", f"write it as a section [{key}]"))
        return None
    backend = table.get("backend")
    model = _COMPONENTS.get(backend) if isinstance(backend, str) else None
    if model is None:
        what = "is missing" if backend is None else f"{backend!r} is not a backend of tvm-ffi"
        faults.append(Fault(f"{key}.backend", what, f"use one of: {', '.join(BACKENDS)}"))
        return None
    component: Component | None = _validate(model, table, key, faults)
    return component


_TYPE_NAMES = {
    "string_type": "a string",
    "int_type": "a whole number, without quotes",
    "list_type": 'a list, e.g. ["a", "b"]',
    "bool_type": "true or false",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "greater_than_equal": "a number that is not negative",
    "less_than_equal": "a smaller number",
    "string_too_short": "a text that is not empty",
}


def _validate(model: type[Any], table: Any, key: str, faults: list[Fault]) -> Any:
    """Return the model of a table, or None after adding its faults."""
    try:
        return model.model_validate(table)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        faults += [_fault(model, key, detail) for detail in details]
        return None


def _fault(model: type[_Table], key: str, detail: ErrorDetails) -> Fault:
    path = ".".join([key, *(str(part) for part in detail["loc"])])
    kind = detail["type"]
    if kind == "missing":
        return Fault(path, "is missing", f"add `{path.rpartition('.')[2]}`")
    if kind == "extra_forbidden":
        *parents, last = detail["loc"]
        section = ".".join([key, *(str(part) for part in parents)])
        return _unknown_key(str(last), section, _keys(_nested(model, parents)))
    found = detail["input"]
    shown = f"is {type(found).__name__} {found!r}" if not isinstance(found, dict) else "is a table"
    return Fault(path, shown, f"write {_TYPE_NAMES.get(kind, detail['msg'])}")


def _keys(model: type[_Table]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _nested(model: type[_Table], keys: Sequence[int | str]) -> type[_Table]:
    """Return the model of the table that `keys` lead to."""
    for key in keys:
        if isinstance(key, str):
            field = next(f for name, f in model.model_fields.items() if (f.alias or name) == key)
            kinds = (field.annotation, *get_args(field.annotation))
            model = next(k for k in kinds if isinstance(k, type) and issubclass(k, _Table))
    return model


def _unknown_key(key: str, section: str, known: Any) -> Fault:
    close = difflib.get_close_matches(key, known, n=1)
    fix = f"write `{close[0]}`" if close else f"remove it; known are: {', '.join(sorted(known))}"
    return Fault(f"{section}.{key}".strip("."), "is not a known key", fix)


def _check_general(general: General) -> list[Fault]:
    faults = []
    if not _NAME.fullmatch(general.name):
        faults.append(
            Fault(
                "general.name",
                f"{general.name!r} is malformed",
                "use 2 to 96 of a-z, 0-9 and `-`, first a letter, last no `-`",
            )
        )
    if not general.license.strip():
        faults.append(Fault("general.license", "is empty", "write an SPDX id, e.g. Apache-2.0"))
    for key in ("upstream", "source"):
        url = getattr(general, key)
        if url is not None and not _is_git_url(url):
            faults.append(
                Fault(
                    f"general.{key}",
                    f"{url!r} is not a git URL",
                    "write e.g. https://host/org/repo",
                )
            )
    repo_id, branch = general.hub.repo_id, general.hub.branch
    if repo_id is not None and not _REPO_ID.fullmatch(repo_id):
        faults.append(
            Fault("general.hub.repo-id", f"{repo_id!r} is malformed", "write <organisation>/<name>")
        )
    if branch is not None and not _BRANCH.fullmatch(branch):
        faults.append(Fault("general.hub.branch", f"{branch!r} is malformed", "write e.g. v1"))
    faults += _check_cuda_range(general.cuda)
    faults += _check_python_depends("general", general.python_depends, "general")
    for backend in ("cuda", "xpu", "neuron", "tpu"):
        table = getattr(general, backend)
        faults += _check_python_depends(f"general.{backend}", table.python_depends, backend)
    for key, found in (
        ("general", general.kernel_depends),
        ("general.cuda", general.cuda.kernel_depends),
        ("general.xpu", general.xpu.kernel_depends),
        ("general.neuron", general.neuron.kernel_depends),
    ):
        faults += _check_kernel_depends(f"{key}.kernel-depends", found)
    return faults


def _is_git_url(text: str) -> bool:
    """Tell whether upstream takes a text as a git URL; it uses the same parser."""
    if " " in text or not text.isprintable():
        return False
    url = _parse_url(text)
    if url is None:
        # As scp writes it: `git@host:org/repo`.
        host, _, path = text.partition(":")
        return path[:1] not in ("", "/") and _parse_url(f"ssh://{host}/{path}") is not None
    return url.scheme in _GIT_SCHEMES and url.host is not None


def _parse_url(text: str) -> Url | None:
    try:
        return Url(text)
    except ValueError:
        return None


def _check_cuda_range(cuda: CudaGeneral) -> list[Fault]:
    faults = []
    for key in ("minver", "maxver"):
        version = getattr(cuda, key)
        if version is not None and not _VERSION.fullmatch(version):
            faults.append(
                Fault(
                    f"general.cuda.{key}",
                    f"{version!r} is not <major>.<minor>",
                    'write e.g. "12.6"',
                )
            )
    if not faults and cuda.minver and cuda.maxver and numbers(cuda.minver) > numbers(cuda.maxver):
        faults.append(
            Fault(
                "general.cuda.minver",
                f"{cuda.minver} is newer than maxver {cuda.maxver}",
                "swap them, or remove one",
            )
        )
    return faults


@lru_cache(maxsize=1024)
def numbers(version: str) -> tuple[int, ...]:
    """Return a dotted version as numbers, without trailing zeros, to compare by."""
    found = [int(part) for part in version.split(".")]
    while found and found[-1] == 0:
        found.pop()
    return tuple(found)


def _is_new_enough(component: Component, version: str | None) -> bool:
    if version is None or not isinstance(component, CudaComponent) or not component.cuda_minver:
        return True
    return numbers(version) >= numbers(component.cuda_minver)


def _check_python_depends(section: str, found: list[str], backend: str) -> list[Fault]:
    known = PYTHON_DEPENDENCIES[backend]
    return [
        Fault(
            f"{section}.python-depends",
            f"{name!r} is not known; the kernels client would refuse to load the kernel",
            f"use one of: {', '.join(known)}" if known else "remove it",
        )
        for name in found
        if name not in known
    ]


def _check_kernel_depends(key: str, found: list[KernelDependency]) -> list[Fault]:
    faults = []
    for index, dependency in enumerate(found):
        if not _REPO_ID.fullmatch(dependency.repo_id):
            faults.append(
                Fault(
                    f"{key}.{index}.repo-id",
                    f"{dependency.repo_id!r} is malformed",
                    "write <organisation>/<name>",
                )
            )
        if (dependency.version is None) == (dependency.revision is None):
            faults.append(
                Fault(f"{key}.{index}", "needs exactly one of version and revision", "keep one")
            )
    return faults


def _check_components(kernel: Kernel) -> list[Fault]:
    """Check that backends and components say the same, and each component's values."""
    faults = []
    backends = kernel.general.backends
    if not backends:
        faults.append(Fault("general.backends", "is empty", "list at least one backend"))
    for backend, count in Counter(backends).items():
        if count > 1:
            faults.append(Fault("general.backends", f"lists {backend!r} twice", "list it once"))
        if backend in UNSUPPORTED_BACKENDS:
            faults.append(
                Fault(
                    "general.backends",
                    f"{backend!r} has no tvm-ffi build",
                    f"remove it; tvm-ffi kernels are built for: {', '.join(BACKENDS)}",
                )
            )
        elif backend not in BACKENDS:
            close = difflib.get_close_matches(backend, BACKENDS, n=1)
            faults.append(
                Fault(
                    "general.backends",
                    f"{backend!r} is not a backend",
                    f"write {close[0]!r}" if close else f"use some of: {', '.join(BACKENDS)}",
                )
            )
        elif not kernel.components_of(backend):
            faults.append(
                Fault(
                    "general.backends",
                    f"lists {backend!r}, but no [kernel.<name>] has that backend",
                    f"add a kernel section with backend = {backend!r}, or remove it from the list",
                )
            )
    for name, component in kernel.components.items():
        key = f"kernel.{name}"
        if component.backend not in backends:
            faults.append(
                Fault(
                    f"{key}.backend",
                    f"is {component.backend!r}, which general.backends does not list",
                    f"add {component.backend!r} to general.backends, or remove the section",
                )
            )
        for dependency in component.depends:
            if dependency not in DEPENDENCIES:
                close = difflib.get_close_matches(dependency, DEPENDENCIES, n=1)
                known = f"use some of: {', '.join(DEPENDENCIES)}"
                faults.append(
                    Fault(
                        f"{key}.depends",
                        f"{dependency!r} is not a known dependency",
                        f"write {close[0]!r}" if close else known,
                    )
                )
        if isinstance(component, CudaComponent):
            faults += _check_archs(
                f"{key}.cuda-capabilities", component.cuda_capabilities, CAPABILITY,
                'write e.g. "9.0", "10.0a" or "12.0+PTX"',
            )  # fmt: skip
            minver = component.cuda_minver
            if minver is not None and not _VERSION.fullmatch(minver):
                faults.append(
                    Fault(
                        f"{key}.cuda-minver",
                        f"{minver!r} is not <major>.<minor>",
                        'write e.g. "12.8"',
                    )
                )
        if isinstance(component, RocmComponent):
            faults += _check_archs(
                f"{key}.rocm-archs", component.rocm_archs, GFX, 'write e.g. "gfx90a"'
            )
        for flags in ("cxx_flags", "cuda_flags", "hip_flags", "sycl_flags"):
            faults += _check_flags(
                f"{key}.{flags.replace('_', '-')}", getattr(component, flags, [])
            )
    faults += _check_flags("tvm-ffi.cxx-flags", kernel.tvm_ffi.cxx_flags)
    for extension in kernel.tvm_ffi.pyext:
        if not re.fullmatch(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*", extension, flags=re.ASCII):
            faults.append(
                Fault(
                    "tvm-ffi.pyext",
                    f"{extension!r} is not a file extension",
                    'write it without a dot, e.g. "json"',
                )
            )
    return faults


def _check_archs(
    key: str, found: list[str] | None, grammar: re.Pattern[str], fix: str
) -> list[Fault]:
    if found is None:
        return []
    faults = [
        Fault(key, f"{arch!r} is malformed", fix) for arch in found if not grammar.fullmatch(arch)
    ]
    faults += [
        Fault(key, f"lists {arch!r} twice", "list it once")
        for arch, count in Counter(found).items()
        if count > 1
    ]
    if not found:
        faults.append(Fault(key, "is empty", "remove the key to build for the default list"))
    return faults


def _check_flags(key: str, flags: list[str]) -> list[Fault]:
    # A `;` would split the flag in CMake, a control character would break Ninja's file.
    return [
        Fault(
            key, f"{flag!r} cannot be passed to a compiler", "write one flag an entry, without `;`"
        )
        for flag in flags
        if not flag.strip() or re.search(r"[;\x00-\x1f]", flag)
    ]


def _check_files(kernel: Kernel) -> list[Fault]:
    """Check every path: relative, inside the kernel's folder, there, and of a known type."""
    faults = _check_sources(kernel.path, "tvm-ffi", kernel.tvm_ffi.src, None)
    faults += _check_includes(kernel.path, "tvm-ffi", kernel.tvm_ffi.include)
    for name, component in kernel.components.items():
        key = f"kernel.{name}"
        faults += _check_sources(kernel.path, key, component.src, component.backend)
        faults += _check_includes(kernel.path, key, component.include)
    if not _NAME.fullmatch(kernel.name):
        return faults
    package = kernel.package.relative_to(kernel.path)
    if not (kernel.package / "__init__.py").is_file():
        faults.append(
            Fault(
                "general.name",
                f"the Python package {package} is missing",
                f"write {package}/__init__.py, or correct the name",
            )
        )
    if (kernel.package / kernel.python_name).exists():
        faults.append(
            Fault(
                "general.name",
                f"{package}/{kernel.python_name} would hide the package itself",
                "rename that folder",
            )
        )
    return faults


def _check_sources(root: Path, section: str, found: list[str], backend: str | None) -> list[Fault]:
    key = f"{section}.src"
    if not found:
        return [Fault(key, "is empty", "list the source files")]
    faults = [
        Fault(key, f"lists {name!r} twice", "list it once")
        for name, count in Counter(posixpath.normpath(name) for name in found).items()
        if count > 1
    ]
    compiled = 0
    for name in dict.fromkeys(found):
        fault = _check_path(root, key, name)
        if fault is not None:
            faults.append(fault)
            continue
        if not os.path.isfile(f"{root}/{name}"):  # noqa: PTH113
            what = "is a folder" if (root / name).is_dir() else "is not a file"
            faults.append(Fault(key, f"{name!r} {what}", "name a file, relative to build.toml"))
            continue
        suffix = posixpath.splitext(name)[1]
        takers = COMPILED_SUFFIXES.get(suffix)
        if suffix in COMPILED_SUFFIXES and (takers is None or backend in takers):
            compiled += 1
        elif suffix not in HEADER_SUFFIXES:
            usable = [s for s, by in COMPILED_SUFFIXES.items() if by is None or backend in by]
            faults.append(
                Fault(
                    key,
                    f"{name!r}: no compiler of this section takes {suffix or 'such'} files",
                    f"use {', '.join(usable)} or a header",
                )
            )
    if not faults and not compiled:
        faults.append(Fault(key, "has headers only", "add the file that is to be compiled"))
    return faults


def _check_includes(root: Path, section: str, found: list[str]) -> list[Fault]:
    key = f"{section}.include"
    faults = []
    for name in found:
        fault = _check_path(root, key, name)
        if fault is None and not (root / name).is_dir():
            fault = Fault(key, f"{name!r} is not a folder", "name a folder, relative to build.toml")
        if fault is not None:
            faults.append(fault)
    return faults


def _check_path(root: Path, key: str, name: str) -> Fault | None:
    """Refuse a path that is not there, or leads out of the folder by name or by a symlink."""
    inside = "copy it into the kernel's folder and name it relative to build.toml"
    if not name or re.search(r"[\x00-\x1f;\\]", name):
        return Fault(key, f"{name!r} is not a usable path", "use `/` and no control characters")
    if name.startswith("/"):
        return Fault(key, f"{name!r} is an absolute path", inside)
    if ".." in name.split("/"):
        return Fault(key, f"{name!r} leads out of the kernel's folder", inside)
    if _is_plainly_there(root, name):
        return None
    try:
        target = (root / name).resolve(strict=True)
    except FileNotFoundError:
        return Fault(key, f"{name!r} does not exist", "correct it; it is relative to build.toml")
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, until Python 3.12
        what = error.strerror if isinstance(error, OSError) else "a loop of links"
        return Fault(key, f"{name!r} cannot be opened: {what}", "correct it")
    if not target.is_relative_to(root):
        return Fault(key, f"{name!r} is a link that leads out of the kernel's folder", inside)
    return None


def _is_plainly_there(root: Path, name: str) -> bool:
    """Tell whether a relative path exists and has no link in it: what nearly all are."""
    path = str(root)
    try:
        for part in name.split("/"):
            path = f"{path}/{part}"
            if stat.S_ISLNK(os.lstat(path).st_mode):
                return False
    except OSError:
        return False
    return True
