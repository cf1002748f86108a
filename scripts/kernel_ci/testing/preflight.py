"""Whether the accelerator of a cell can be used on this machine, asked before anything is tested.

Each check asks the driver itself. What is missing is the machine's fault and not the kernel's:
an error that says what to do, and never a skipped test.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from dataclasses import dataclass

from kernel_ci.errors import InfrastructureError
from kernel_ci.kernel import numbers
from kernel_ci.plan import Cell
from kernel_ci.toolchains.table import PTX

# Of CUdevice_attribute in cuda.h.
_MAJOR, _MINOR = 75, 76

_FRAMEWORK = """
import json, torch
print(json.dumps({
    "torch": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip,
    "available": torch.cuda.is_available(),
}))
"""


@dataclass(frozen=True)
class Device:
    """An accelerator that was found.

    Attributes:
        name: As its driver calls it.
        arch: Its architecture, e.g. `9.0` or `gfx90a`.
        driver: The newest version of the toolkit that the driver can run, `<major>.<minor>`;
            None where the driver does not limit it.
    """

    name: str
    arch: str
    driver: str | None


def check(cell: Cell) -> Device | None:
    """Return the device that a cell is going to be tested on; None for the CPU.

    Raises:
        InfrastructureError: There is none, its driver or the framework cannot be used, or it is
            none of those that the cell is built for.
    """
    if cell.backend == "cuda":
        device = find_cuda(cell.id)
    elif cell.backend == "rocm":
        device = find_rocm(cell.id)
    else:
        return None
    wrong = unsuitable(cell, device)
    if wrong is not None:
        raise InfrastructureError(f"{device.name}: {wrong[0]}", where=cell.id, fix=wrong[1])
    _check_framework(cell)
    return device


def unsuitable(cell: Cell, device: Device) -> tuple[str, str] | None:
    """Return why a device cannot run a cell, and what to do; None where it can. Pure."""
    version = cell.backend_version or ""
    if device.driver is not None and numbers(device.driver) < numbers(version):
        return (
            f"its driver runs CUDA {device.driver} at most, and the variant is for {version}",
            "update the driver, or take a variant for an older toolkit",
        )
    if any(_runs(arch, device.arch) for arch in cell.archs):
        return None
    return (
        f"it is {device.arch}, and the variant has code for {', '.join(cell.archs)} only",
        "use another device, or add its architecture to build.toml",
    )


def _runs(arch: str, device: str) -> bool:
    """Tell whether code for an architecture runs on a device."""
    if device.startswith("gfx"):
        return arch == device
    base, there = arch.removesuffix(PTX), numbers(device)
    number = numbers(base.rstrip("af"))
    if base.endswith("a"):
        return number == there
    # Machine code runs on later devices of its generation, PTX on all later ones.
    same = number[0] == there[0]
    return number <= there and (same or (arch.endswith(PTX) and not base.endswith("f")))


def find_cuda(where: str) -> Device:
    """Return the first NVIDIA GPU, asking its driver.

    Args:
        where: The cell's id, for messages.

    Raises:
        InfrastructureError: There is no driver, it does not work, or it has no device.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise InfrastructureError(
            "there is no NVIDIA driver here (libcuda.so.1)", where=where, fix=_NO_DEVICE
        ) from None

    def call(name: str, *arguments: object) -> None:
        status = getattr(driver, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            driver.cuGetErrorString(status, ctypes.byref(text))
            reason = (text.value or b"unknown").decode()
            raise InfrastructureError(
                f"the NVIDIA driver cannot be used: {name}: {reason} ({status})",
                where=where,
                fix=f"see what `nvidia-smi` says; {_NO_DEVICE}",
            )

    count, version, device = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    call("cuInit", 0)
    call("cuDriverGetVersion", ctypes.byref(version))
    call("cuDeviceGetCount", ctypes.byref(count))
    if count.value == 0:
        raise InfrastructureError(
            "the NVIDIA driver shows no device (CUDA_VISIBLE_DEVICES?)", where=where, fix=_NO_DEVICE
        )
    name = ctypes.create_string_buffer(256)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDeviceGetName", name, len(name), device)
    arch = []
    for attribute in (_MAJOR, _MINOR):
        value = ctypes.c_int()
        call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        arch.append(str(value.value))
    return Device(
        name=name.value.decode(errors="replace"),
        arch=".".join(arch),
        driver=f"{version.value // 1000}.{version.value % 1000 // 10}",
    )


def find_rocm(where: str) -> Device:
    """Return the first AMD GPU, asking ROCm's runtime (see `find_cuda`)."""
    done = _run(["rocminfo"])
    if done is None:
        raise InfrastructureError(
            "rocminfo is missing or does not work, so no AMD GPU can be found",
            where=where,
            fix=f"install ROCm's rocminfo, and let this user open /dev/kfd; {_NO_DEVICE}",
        )
    name, arch = "", ""
    for line in done.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "Name" and value.strip().startswith("gfx"):
            arch = value.strip()
        elif key.strip() == "Marketing Name" and arch:
            return Device(name=value.strip() or arch, arch=arch, driver=None)
        elif key.strip() == "Marketing Name":
            name = value.strip()
    if arch:
        return Device(name=name or arch, arch=arch, driver=None)
    raise InfrastructureError("rocminfo shows no AMD GPU", where=where, fix=_NO_DEVICE)


def _check_framework(cell: Cell) -> None:
    """Refuse a torch that cannot make arrays on the device: nothing could be tested."""
    version_of = {"cuda": "cuda", "rocm": "hip"}[cell.backend]
    output = _run([sys.executable, "-c", _FRAMEWORK])
    found = json.loads(output.splitlines()[-1]) if output else None
    if found is not None and found[version_of] and found["available"]:
        return
    if found is None:
        what = "torch is not installed here"
    elif not found[version_of]:
        what = f"torch {found['torch']} is built without {cell.backend}"
    else:
        what = f"torch {found['torch']} ({version_of} {found[version_of]}) does not see the device"
    raise InfrastructureError(
        f"{what}, and the tests need its arrays",
        where=cell.id,
        fix=f"install a torch for {cell.backend} that works with this driver",
    )


def _run(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


_NO_DEVICE = "test on a machine with the device, or build without a test (--build-only)"
