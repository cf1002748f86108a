"""Whether the accelerator of a cell can be used on this machine, asked before anything is tested.

Each check asks the driver itself. What is missing is the machine's fault and not the kernel's:
an error that says what to do, and never a skipped test.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernel_ci.audit.policy import systems
from kernel_ci.errors import InfrastructureError
from kernel_ci.kernel import numbers
from kernel_ci.plan import Cell
from kernel_ci.toolchains.archs import PTX

# Of CUdevice_attribute in cuda.h.
_MAJOR, _MINOR = 75, 76

#: What torch says about itself: for each backend what it is built for, and whether it sees a
#: device.
_FRAMEWORK = """
import json, torch
gpu, xpu, mps = torch.cuda.is_available(), torch.xpu.is_available(), torch.backends.mps
print(json.dumps({
    "torch": torch.__version__,
    "cuda": [torch.version.cuda, gpu],
    "rocm": [torch.version.hip, gpu],
    "xpu": [torch.version.xpu, xpu],
    "metal": ["mps" if mps.is_built() else None, mps.is_available()],
}))
"""

#: Where Linux shows the devices that the drivers of Intel's GPUs can compute on.
_RENDER = Path("/dev/dri")


@dataclass(frozen=True)
class Device:
    """An accelerator that was found.

    Attributes:
        name: As its driver calls it.
        arch: Its architecture, e.g. `9.0` or `gfx90a`; None where the driver does not tell.
        driver: The newest version of the toolkit that the driver can run, `<major>.<minor>`;
            None where the driver does not limit it.
    """

    name: str
    arch: str | None
    driver: str | None


def check(cell: Cell) -> Device | None:
    """Return the device that a cell is going to be tested on; None for the CPU.

    Raises:
        InfrastructureError: There is none, its driver or the framework cannot be used, or it is
            none of those that the cell is built for.
    """
    if cell.backend not in FIND:
        return None
    device = FIND[cell.backend](cell.id)
    wrong = unsuitable(cell, device)
    if wrong is not None:
        raise InfrastructureError(f"{device.name}: {wrong[0]}", where=cell.id, fix=wrong[1])
    _check_framework(cell)
    return device


def unsuitable(cell: Cell, device: Device) -> tuple[str, str] | None:
    """Return why a device cannot run a cell, and what to do; None where it can. Pure."""
    version = cell.backend_version or ""
    if device.arch is None:
        return None
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


def find_xpu(where: str) -> Device:
    """Return Intel's GPU, asking the kernel for it; what it is, only torch tells.

    Args:
        where: The cell's id, for messages.

    Raises:
        InfrastructureError: There is none, or this user may not use it.
    """
    nodes = sorted(_RENDER.glob("renderD*"))
    if not nodes:
        raise InfrastructureError(
            f"there is no GPU to compute on here ({_RENDER}/renderD*)", where=where, fix=_NO_DEVICE
        )
    if not any(os.access(node, os.R_OK | os.W_OK) for node in nodes):
        raise InfrastructureError(
            f"this user may not use {nodes[0]}",
            where=where,
            fix="add the user to the group `render`",
        )
    return Device(name="Intel GPU", arch=None, driver=None)


def find_metal(where: str) -> Device:
    """Return this Mac's GPU (see `find_xpu`); a macOS that is too old for Metal 4 has none."""
    if sys.platform != "darwin":
        raise InfrastructureError("there is no Metal but on macOS", where=where, fix=_NO_DEVICE)
    version, minimum = platform.mac_ver()[0], systems().macos_minimum["metal"]
    if numbers(version) < numbers(minimum):
        raise InfrastructureError(
            f"this is macOS {version}, and Metal variants need {minimum}",
            where=where,
            fix="update macOS, or test on another machine",
        )
    name = _run(["sysctl", "-n", "machdep.cpu.brand_string"])
    return Device(name=(name or "Apple GPU").strip(), arch=None, driver=None)


#: Backend -> what finds its device. The CPU needs none.
FIND: dict[str, Callable[[str], Device]] = {
    "cuda": find_cuda,
    "rocm": find_rocm,
    "xpu": find_xpu,
    "metal": find_metal,
}


def _check_framework(cell: Cell) -> None:
    """Refuse a torch that cannot make arrays on the device: nothing could be tested."""
    output = _run([sys.executable, "-c", _FRAMEWORK])
    found = json.loads(output.splitlines()[-1]) if output else None
    if found is None:
        what = "torch is not installed here, or does not work"
    else:
        built_for, available = found[cell.backend]
        if built_for and available:
            return
        what = f"torch {found['torch']} is built without {cell.backend}"
        if built_for:
            what = f"torch {found['torch']} ({cell.backend} {built_for}) does not see the device"
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
