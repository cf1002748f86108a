"""A process that holds one build and its benchmarks, and times them when told to.

Requests come as JSON lines on standard input, answers go to what was standard output;
what benchmarks print goes to standard error. Two builds never share a process: as their
modules can have one name, the second would silently run the first one's library.

    python -m kernel_ci.bench.worker VARIANT BENCHMARKS BACKEND
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from kernel_ci.devices import torch_name

#: What `verify_*` and the kernel may differ by: that of the kernels client (0.17.2).
_TOLERANCE = 1e-2


class Unusable(Exception):
    """A benchmark that cannot be timed; the text says why."""


def classes(folder: Path) -> Iterator[tuple[str, type[Any]]]:
    """Return the benchmark classes of a folder, each with `<script>::<class>`.

    Raises:
        Unusable: A script cannot be imported.
    """
    from kernels.benchmark import Benchmark

    sys.path.insert(0, str(folder))
    for number, script in enumerate(sorted(folder.glob("benchmark*.py"))):
        name = f"kernel_ci_benchmark_{number}"
        spec = importlib.util.spec_from_file_location(name, script)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        _guarded(script.name, partial(spec.loader.exec_module, module))
        for found in vars(module).copy().values():
            # Imported ones belong to another script.
            own = isinstance(found, type) and found.__module__ == name
            if own and issubclass(found, Benchmark):
                yield f"{script.stem}::{found.__name__}", found


class Session:
    """A loaded build with the benchmarks of a folder."""

    def __init__(self, variant: Path, folder: Path, backend: str):
        from kernels import get_local_kernel

        self._kernel = _guarded(
            "loading the kernel", lambda: get_local_kernel(variant, backend=backend)
        )
        self._device = torch_name(backend)
        self._workloads = {
            f"{prefix}::{method.removeprefix('benchmark_')}": (cls, method)
            for prefix, cls in classes(folder)
            for method in sorted(dir(cls))
            if method.startswith("benchmark_") and callable(getattr(cls, method))
        }
        self._call: Callable[[], Any] = lambda: None

    def names(self) -> list[str]:
        """Return the names of the workloads, in the order to run them."""
        return list(self._workloads)

    def prepare(self, name: str) -> bool:
        """Set a workload up and check what it computes.

        Returns:
            Whether it has a `verify_*`.

        Raises:
            Unusable: It raised, or computed something else.
        """
        cls, method = self._workloads[name]
        workload = method.removeprefix("benchmark_")
        instance = _guarded(name, cls)
        instance.kernel, instance.device = self._kernel, self._device
        if instance.seed is not None:
            _seed(instance.seed)
        setup = getattr(instance, f"setup_{workload}", instance.setup)
        _guarded(f"{name}: {setup.__name__}", setup)
        self._call = getattr(instance, method)
        _guarded(name, self._call)
        _guarded(name, synchronize)
        verify = getattr(instance, f"verify_{workload}", None)
        if verify is not None:
            expected = _guarded(f"{name}: verify_{workload}", verify)
            same = _guarded(f"{name}: verify_{workload}", lambda: _close(instance.out, expected))
            if not same:
                raise Unusable(f"{name}: self.out is not what verify_{workload} returns")
        return verify is not None

    def time(self, calls: int) -> float:
        """Return the seconds that one call takes, from so many in a row."""
        call = self._call
        synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        synchronize()
        return (time.perf_counter() - start) / calls


def synchronize() -> None:
    """Wait for what PyTorch's devices have been given to do."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    elif torch.xpu.is_available():
        torch.xpu.synchronize()
    elif torch.backends.mps.is_available():
        torch.mps.synchronize()


def _seed(seed: int) -> None:
    import numpy as np

    random.seed(seed)
    np.random.seed(seed)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(seed)


def _close(out: Any, expected: Any) -> bool:
    import numpy as np

    torch = sys.modules.get("torch")
    if torch is not None and isinstance(expected, torch.Tensor):
        return bool(torch.allclose(out, expected, atol=_TOLERANCE))
    return bool(np.allclose(out, expected, atol=_TOLERANCE))


def _guarded(what: str, action: Callable[[], Any]) -> Any:
    """Run an author's code; whatever it raises becomes a message."""
    try:
        return action()
    except (Exception, SystemExit) as error:
        lines = str(error).strip().splitlines()
        raise Unusable(
            f"{what}: {type(error).__name__}{f': {lines[0]}' if lines else ''}"
        ) from error


def _main(variant: str, folder: str, backend: str) -> None:
    # A benchmark's own output must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    session: Session | None = None

    def answer(request: dict[str, Any]) -> Any:
        nonlocal session
        if request["do"] == "load":
            session = Session(Path(variant), Path(folder), backend)
            return session.names()
        assert session is not None
        if request["do"] == "prepare":
            return session.prepare(request["name"])
        return _guarded("timing", lambda: session.time(request["calls"]))

    for line in sys.stdin:
        try:
            reply = {"ok": answer(json.loads(line))}
        except Unusable as error:
            reply = {"error": str(error)}
        print(json.dumps(reply), file=answers, flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
