"""What the readers find in a library and in a variant directory: facts, no judgement."""

from __future__ import annotations

from pydantic import Field

from kernel_ci.documents import Model


class Import(Model):
    """A symbol that a library needs from elsewhere.

    Attributes:
        name: The symbol, without the leading underscore of macOS.
        version: ELF symbol version, e.g. `GLIBC_2.17`.
        library: The library that must provide it, where the format says so.
        weak: The library loads without it.
    """

    name: str
    version: str | None = None
    library: str | None = None
    weak: bool = False


class LibraryFacts(Model):
    """What a shared library says about itself.

    Attributes:
        path: File, relative to what is audited.
        size: Bytes.
        format: `elf`, `macho` or `pe`.
        arch: As in a variant's name (`x86_64`, `aarch64`), else the format's own word.
        os: As in a variant's name.
        identity: SONAME, install name, or the name in a DLL's export table.
        needed: Libraries that the loader must find, as written.
        rpath: Search paths written into the library.
        executable_stack: The library demands an executable stack.
        text_relocations: The library patches its own code when it is loaded.
        stays_loaded: It is marked to stay loaded until the process ends (`-z nodelete`).
        stripped: It has no symbol table besides the one for dynamic linking.
        min_os: Oldest macOS that it runs on, `<major>.<minor>`.
        version_needs: ELF versions needed, by library.
        imports: Symbols it needs.
        functions: tvm-ffi functions it exports, without their prefix `__tvm_ffi_`.
        other_exports: Further exported names (sorted).
        features: Features of tvm-ffi whose marks are in its bytes (see `abi_notes.toml`).
        stamp: Text of its build stamp.
    """

    path: str
    size: int
    format: str
    arch: str
    os: str
    identity: str | None = None
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    executable_stack: bool = False
    text_relocations: bool = False
    stays_loaded: bool | None = None
    stripped: bool = True
    min_os: str | None = None
    version_needs: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    imports: tuple[Import, ...] = ()
    functions: tuple[str, ...] = ()
    other_exports: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    stamp: str | None = None

    @property
    def platform(self) -> str:
        """`<arch>-<os>`."""
        return f"{self.arch}-{self.os}"


class PythonFacts(Model):
    """What the Python files of a variant directory say.

    Attributes:
        public: `__all__` of `__init__.py`, None without one.
        ops: Names used as `ops.<name>` anywhere, with the file of the first use.
        unreadable: Files that are not Python, with the reason.
    """

    public: tuple[str, ...] | None = None
    ops: dict[str, str] = Field(default_factory=dict)
    unreadable: dict[str, str] = Field(default_factory=dict)


class DirectoryFacts(Model):
    """What is in a variant directory.

    Attributes:
        name: Its own name, which should be that of a variant.
        files: All files, `/`-relative.
        links: Symbolic links among them, with their targets.
        metadata: The decoded `metadata.json`, None where it is missing or not a JSON object.
        metadata_error: Why the `kernels` client cannot read it.
        digest_faults: Differences between the files and the digest in the metadata.
        python: What its Python files say.
    """

    name: str
    files: tuple[str, ...]
    links: dict[str, str] = Field(default_factory=dict)
    metadata: dict[str, object] | None = None
    metadata_error: str | None = None
    digest_faults: tuple[str, ...] | None = None
    python: PythonFacts = PythonFacts()
