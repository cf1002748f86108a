"""A glibc 2.28 to build against (manylinux_2_28) with compilers other than zig's own.

nvcc takes neither zig's clang (too new for it) nor libc++, only GCC with libstdc++; hipcc's clang
wants libstdc++ as well. On a system newer than manylinux_2_28 they would pick up its glibc. zig's
wheel has the headers of every glibc, and makes link stubs for one; put together as a sysroot,
they serve any compiler: `g++ --sysroot=… -static-libstdc++`. libstdc++ is linked statically
because the system's is newer than manylinux_2_28 has; what it takes from a newer glibc is
supplied by `data/glibc_compat.c`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from importlib.resources import as_file, files
from pathlib import Path

from kernel_ci import cache
from kernel_ci.errors import InfrastructureError, InputError
from kernel_ci.toolchains import zig

#: The minor version of glibc 2.
_GLIBC = 28

#: To be raised when what `_assemble` makes changes: it is cached.
_REVISION = 3

#: Folders of zig's libc headers, the most general first, by architecture.
_HEADERS = {
    "x86_64": ("any-linux-any", "x86-linux-any", "generic-glibc", "x86-linux-gnu"),
    "aarch64": ("any-linux-any", "aarch64-linux-any", "generic-glibc", "aarch64-linux-gnu"),
}


def find(arch: str) -> Path:
    """Return the sysroot for an architecture, made on the first use.

    One that is in the cache also serves where zig is not installed.

    Args:
        arch: `x86_64` or `aarch64`.

    Raises:
        InputError: zig is not installed, and there is none in the cache.
        InfrastructureError: zig could not make its stubs.
    """
    folder = cache.root() / "sysroot"
    name = f"glibc-2.{_GLIBC}-zig-{{}}-{_REVISION}"
    try:
        version = zig.version()
    except InputError:
        if kept := sorted(folder.glob(f"{name.format('*')}/{arch}")):
            return kept[-1]
        raise
    target = folder / name.format(version) / arch
    with cache.lock(target):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
                made = Path(temporary) / arch
                _assemble(arch, made)
                made.rename(target)
    return target


def versions(arch: str) -> dict[str, str]:
    """Return what the sysroot was made from, for receipts."""
    return {f"glibc 2.{_GLIBC}": f"of zig {find(arch).parent.name.split('-')[3]}"}


def flags(arch: str) -> list[str]:
    """Return what makes GCC or clang use the sysroot, when compiling and when linking."""
    root = find(arch)
    # -B and -L: both would look into the system's own library folder before the sysroot's.
    return [f"--sysroot={root}", f"-B{root}/usr/lib", f"-L{root}/usr/lib"]


def _assemble(arch: str, root: Path) -> None:
    include, lib = root / "usr" / "include", root / "usr" / "lib"
    lib.mkdir(parents=True)
    headers = zig.executable().parent / "lib" / "libc" / "include"
    for name in _HEADERS[arch]:
        shutil.copytree(headers / name, include, dirs_exist_ok=True)
    _date_headers(include)
    stubs = _stubs(arch, root)
    for stub in stubs:
        shutil.copyfile(stub, lib / stub.name)
        if found := re.fullmatch(r"(lib(?:m|pthread|dl|rt|util|resolv)\.so)\.[0-9]+", stub.name):
            (lib / found[1]).symlink_to(stub.name)
    with as_file(files("kernel_ci") / "data" / "glibc_compat.c") as compat:
        _compile(arch, compat, root / "compat.o")
    _zig("ar", "rcs", str(lib / "libcompat.a"), str(root / "compat.o"))
    _unwinder(arch, root)
    # GCC puts these around every library. glibc's own hold nothing that is needed there.
    (root / "empty.c").write_text("")
    for name in ("crti.o", "crtn.o"):
        _compile(arch, root / "empty.c", lib / name)
    # Threads and dlopen are part of libc since 2.34, so no newer compiler asks for them.
    (lib / "libc.so").write_text(
        "GROUP ( libc.so.6 libc_nonshared.a libcompat.a\n"
        "        AS_NEEDED ( libld.so.2 libpthread.so.0 libdl.so.2 ) )\n"
    )


def _date_headers(include: Path) -> None:
    """Make zig's headers, which serve all versions of glibc, those of one version."""
    features = include / "features.h"
    minor = f"#ifndef __GLIBC_MINOR__\n#define __GLIBC_MINOR__ {_GLIBC}\n#endif\n"
    features.write_text(minor + features.read_text())
    # Of glibc 2.32; libstdc++ uses what it declares if only the file is there.
    (include / "sys" / "single_threaded.h").unlink()
    # Functions of glibc 2.41 and later. Some (rsqrt) clash with those of CUDA's headers.
    header = include / "bits" / "libc-header-start.h"
    switch = "define __GLIBC_USE_IEC_60559_FUNCS_EXT_C23"
    header.write_text(header.read_text().replace(f"{switch} 1", f"{switch} 0"))


def _stubs(arch: str, folder: Path) -> list[Path]:
    """Return zig's link stubs and static part of glibc, out of its cache."""
    (folder / "empty.c").write_text("")
    command = ["build-lib", "-dynamic", "--verbose-link", "-lc", "-target", _target(arch)]
    command += [f"-femit-bin={folder / 'empty.so'}", str(folder / "empty.c")]
    log = _zig(*command, cwd=folder)
    names = re.findall(r"\S+/(?:lib\w+\.so\.[0-9]+|libc_nonshared\.a)(?=\s)", log)
    found = [Path(name) for name in dict.fromkeys(names)]
    if not {"libc.so.6", "libc_nonshared.a", "libld.so.2"} <= {path.name for path in found}:
        raise InfrastructureError(
            f"zig {zig.version()} does not tell where its stubs of glibc are",
            fix="install another release of ziglang; 0.17.1 is known to work",
        )
    return found


def _unwinder(arch: str, root: Path) -> None:
    """Make a link stub of libgcc_s.so.1, which clang would not find outside the sysroot."""
    with as_file(files("kernel_ci") / "data" / "libgcc_s.map") as versions:
        names = re.findall(r"\b(_\w+);", versions.read_text())
        source = root / "unwinder.c"
        source.write_text("".join(f"void {name}(void) {{}}\n" for name in names))
        command = ["cc", "-target", _target(arch), "-shared", "-nostdlib", "-fno-builtin", "-g0"]
        command += ["-Wl,-soname,libgcc_s.so.1", f"-Wl,--version-script={versions}"]
        _zig(*command, str(source), "-o", str(root / "usr" / "lib" / "libgcc_s.so.1"))


def _compile(arch: str, source: Path, target: Path) -> None:
    command = ["cc", "-target", _target(arch), "-O2", "-g0", "-fPIC", "-ffunction-sections"]
    _zig(*command, "-fdata-sections", "-c", str(source), "-o", str(target))


def _target(arch: str) -> str:
    return f"{arch}-linux-gnu.2.{_GLIBC}"


def _zig(*arguments: str, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(zig.executable()), *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise InfrastructureError(
            f"zig could not make a sysroot: {done.stderr.strip()}",
            fix="run again; if it stays, clear zig's cache (`zig env` names it)",
        )
    return done.stderr
