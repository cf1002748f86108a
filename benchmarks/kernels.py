"""The reference kernel against PyTorch, NumPy and the memory's own speed.

    python -m benchmarks.kernels -o DIR

All candidates of a size take turns in one process, and the fastest of many turns counts: what
disturbs a machine only ever adds time. The kernel is compared with what the caller has otherwise:
with PyTorch for its tensors, with NumPy for its arrays. Writes DIR/kernels.json.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.common import REFERENCE
from kernel_ci import devices
from kernel_ci.build import build_cell
from kernel_ci.layout import variant_directory, write_plan
from kernel_ci.plan import Selection, host_platform, plan_folders
from kernel_ci.receipts import installed, this_machine

DTYPES = ("float32", "float64", "float16", "bfloat16")
#: From one element on; the last ones are far larger than any cache.
SIZES = (8, 4 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20)
GPU_SIZES = (8, 4 << 10, 1 << 20, 64 << 20, 1 << 30)
#: From here on the copy's bandwidth is the measure.
LARGE = 64 << 20
#: The share of the copy's bandwidth that is the goal.
SHARE = 0.9
#: What a call may take more than the best of the others before the goal counts as missed: two
#: runs of one function differ by as much here.
NOISE = 1.05
#: Each size gets about so much time of turns.
SECONDS = 0.5

COPIES = ("memcpy", "torch copy", "streaming copy")
#: A copy past the caches, which neither memcpy nor PyTorch's copy is: what the memory can do.
STREAM = """
#include <immintrin.h>
#include <stddef.h>
__attribute__((target("avx2"))) void stream(char* to, const char* from, size_t bytes) {
  for (size_t i = 0; i + 32 <= bytes; i += 32) {
    _mm256_stream_si256((__m256i*)(to + i), _mm256_loadu_si256((const __m256i*)(from + i)));
  }
  _mm_sfence();
}
"""

Call = Callable[[], Any]


def fastest(calls: dict[str, Call], seconds: float) -> dict[str, float]:
    """Return the least seconds a call took, of calls that take turns for so long."""
    counts = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        # Short ones are timed in bundles, as the clock itself takes some 50 ns.
        counts[name] = max(1, int(50e-6 / max(time.perf_counter() - start, 1e-7)))
    best = dict.fromkeys(calls, float("inf"))
    turns, end = 0, time.perf_counter() + seconds
    while turns < 5 or time.perf_counter() < end:
        turns += 1
        for name, call in calls.items():
            count = counts[name]
            start = time.perf_counter()
            for _ in range(count):
                call()
            best[name] = min(best[name], (time.perf_counter() - start) / count)
    return best


def build(folder: Path, backend: str) -> Path:
    """Build the reference kernel for this machine and return the variant directory."""
    plan = plan_folders([REFERENCE], Selection(provable_here=True, backends=(backend,)))
    write_plan(plan, folder / "plan.json")
    cell = plan.cells[-1]
    receipt = build_cell(plan, cell, folder)
    if receipt.outcome == "failed":
        raise SystemExit(f"the reference kernel does not build: {receipt.findings}")
    return variant_directory(folder, cell)


def streaming_copy(folder: Path) -> Callable[[int, int, int], Any] | None:
    """Compile `STREAM` and return it as a function of addresses and bytes; None elsewhere."""
    if host_platform() != "x86_64-linux" or "avx2" not in Path("/proc/cpuinfo").read_text():
        return None
    source, library = folder / "stream.c", folder / "stream.so"
    source.write_text(STREAM)
    compiler = [sys.executable, "-m", "ziglang", "cc", "-O3", "-shared", "-fPIC"]
    subprocess.run([*compiler, str(source), "-o", str(library)], check=True)
    function = ctypes.CDLL(str(library)).stream
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    return function


def cpu_size(
    kernel: Any, torch: Any, stream: Any, dtype: str, size: int, threads: int
) -> dict[str, float]:
    """Time one size, in bytes, of one type on the CPU."""
    kind = getattr(torch, dtype)
    x = torch.randn(size // kind.itemsize or 1).to(kind)
    out = torch.empty_like(x)
    raw = kernel._ops.ops.relu
    libc = ctypes.CDLL(None)
    libc.memcpy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    to, at, count = out.data_ptr(), x.data_ptr(), x.nbytes
    calls: dict[str, Call] = {
        "kernel": lambda: kernel.relu(x, out=out),
        "kernel, bare": lambda: raw(out, x),
        "torch": lambda: torch.clamp(x, min=0, out=out),
        "memcpy": lambda: libc.memcpy(to, at, count),
        "torch copy": lambda: out.copy_(x),
    }
    if stream is not None and size >= LARGE and to % 32 == 0:
        calls["streaming copy"] = lambda: stream(to, at, count)
    if dtype != "bfloat16":
        import numpy as np

        x_array, out_array = x.numpy(), out.numpy()
        calls["kernel, numpy"] = lambda: kernel.relu(x_array, out=out_array)
        calls["numpy"] = lambda: np.maximum(x_array, 0, out=out_array)
    torch.set_num_threads(1)
    best = fastest(calls, SECONDS)
    if threads > 1:
        torch.set_num_threads(threads)
        names = ("kernel", "torch", "torch copy")
        more = fastest({name: calls[name] for name in names}, SECONDS / 2)
        best |= {f"{name}, {threads} threads": more[name] for name in names[1:]}
        best["kernel"] = min(best["kernel"], more["kernel"])
    return best


def cuda_size(kernel: Any, torch: Any, dtype: str, size: int) -> dict[str, float]:
    """Time one size, in bytes, of one type on the GPU."""
    kind = getattr(torch, dtype)
    x = torch.randn(size // kind.itemsize or 1, device="cuda").to(kind)
    out = torch.empty_like(x)

    def finished(call: Call) -> Call:
        def run() -> None:
            call()
            torch.cuda.synchronize()

        return run

    return fastest(
        {
            "kernel": finished(lambda: kernel.relu(x, out=out)),
            "torch": finished(lambda: torch.clamp(x, min=0, out=out)),
            "torch copy": finished(lambda: out.copy_(x)),
        },
        SECONDS,
    )


def judge(size: int, best: dict[str, float]) -> dict[str, object]:
    """Compare the kernel with each of the others and, where it is large, with the copy.

    Returns:
        `times`, how many times as long the kernel takes as each of the others; `share`, the
        part of the copy's bandwidth that it has, None for small sizes; `met`, whether both are
        within the goals.
    """
    times = {
        name: best["kernel, numpy" if name == "numpy" else "kernel"] / seconds
        for name, seconds in best.items()
        if name == "numpy" or name.partition(",")[0] == "torch"
    }
    # The kernel has one thread, and so have the copies that it is measured by.
    copies = [seconds for name, seconds in best.items() if name in COPIES]
    share = min(copies) / best["kernel"] if size >= LARGE else None
    met = max(times.values()) <= NOISE and (share is None or share >= SHARE)
    return {"times": times, "share": share, "met": met}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("out"), metavar="DIR")
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    try:
        import torch
    except ImportError:
        console.print("the reference kernel's benchmark needs torch; it was left out")
        return 0
    from kernels import get_local_kernel

    threads = torch.get_num_threads()
    rows: list[dict[str, Any]] = []
    for backend, sizes in (("cpu", SIZES), ("cuda", GPU_SIZES)):
        cannot = devices.why_not(host_platform(), backend)
        if cannot is None and backend == "cuda" and not torch.cuda.is_available():
            cannot = "this torch sees no GPU"
        if cannot is not None:
            console.print(f"{backend} was not measured: {cannot}", highlight=False)
            continue
        with tempfile.TemporaryDirectory(prefix="kernel-ci-bench-") as scratch:
            variant = build(Path(scratch), backend)
            kernel = get_local_kernel(variant, backend=backend)
            stream = None
            if backend == "cpu":
                stream = streaming_copy(Path(scratch))
                # Not counted: Python turns to faster code after the first calls of a function.
                cpu_size(kernel, torch, stream, DTYPES[0], sizes[0], threads)
            for dtype in DTYPES:
                for size in sizes:
                    if backend == "cpu":
                        best = cpu_size(kernel, torch, stream, dtype, size, threads)
                    else:
                        best = cuda_size(kernel, torch, dtype, size)
                    judged = judge(size, best)
                    rows.append(
                        {"backend": backend, "dtype": dtype, "bytes": size, "seconds": best}
                        | judged
                    )
    console.print(_table(rows, threads))
    console.print(
        f"goal: at most {NOISE} times as long as each of the others, and {SHARE:.0%} of the fastest"
        f" copy's bandwidth from {LARGE >> 20} MiB on; {sum(row['met'] for row in rows)} of"
        f" {len(rows)} met"
    )
    options.output.mkdir(parents=True, exist_ok=True)
    content = {
        "machine": this_machine().model_dump(mode="json"),
        "tools": installed(),
        "rows": rows,
    }
    (options.output / "kernels.json").write_text(json.dumps(content, indent=1) + "\n")
    return 0


def _table(rows: Sequence[dict[str, Any]], threads: int) -> Table:
    """Return the table: microseconds, and how many times as long the kernel takes."""
    table = Table(title="reference kernel: µs a call", title_justify="left")
    others = ("torch", f"torch, {threads} threads", "numpy")
    timed = ("kernel", "kernel, bare", *others[:2], "kernel, numpy", "numpy")
    headings = ("", "bytes", "kernel", "bare call", "torch", f"{threads} threads")
    more = (
        "kernel, numpy",
        "numpy",
        "÷ torch",
        f"÷ {threads} threads",
        "÷ numpy",
        "of copy",
        "goal",
    )
    for heading in (*headings, *more):
        table.add_column(heading, justify="right")
    for row in rows:
        times = [row["seconds"].get(name) for name in timed]
        ratios = [row["times"].get(name) for name in others]
        table.add_row(
            f"{row['backend']} {row['dtype']}",
            f"{row['bytes']:,}",
            *("-" if seconds is None else f"{seconds * 1e6:.4g}" for seconds in times),
            *("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
            "-" if row["share"] is None else f"{row['share']:.0%}",
            "met" if row["met"] else "missed",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
