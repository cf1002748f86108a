"""Loads a library and drives its functions into errors; run in a process of its own.

`python -m kernel_ci.audit.runtime_probe LIBRARY FUNCTION…`, under some release of tvm-ffi.
Prints one line of JSON a step, before or after it as its name says, so that a process that
dies still tells where. Nothing here judges.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

#: More arguments than any function takes.
_MANY = 99

#: Held until the interpreter ends, as a loaded kernel is: what goes wrong while a library is
#: unloaded belongs to the test.
_held: list[Any] = []


def _say(step: str, **values: object) -> None:
    print(json.dumps({"step": step, **values}), flush=True)


def _call(function: Any, name: str, arguments: tuple[object, ...]) -> str:
    """Call a function and return the message of the error that it raised, empty for none."""
    _say("calls", function=name, arguments=len(arguments))
    try:
        function(*arguments)
    except Exception as error:
        _say("raised", function=name, error=type(error).__name__)
        return str(error)
    _say("returned", function=name)
    return ""


def main(library: str, functions: list[str]) -> None:
    """Load a library and call each of its functions with arguments that it cannot take."""
    # An old tvm-ffi compiles an addon for torch when it is imported, which takes minutes and
    # which some releases (0.1.0) cannot be told to leave out.
    sys.modules["torch"] = None  # type: ignore[assignment]
    import tvm_ffi

    _say("runtime", version=str(tvm_ffi.__version__), file=tvm_ffi.__file__)
    try:
        module = tvm_ffi.load_module(library)
    except Exception as error:
        _say("refused", error=f"{type(error).__name__}: {error}")
        return
    _say("loaded")
    _held.append(module)
    for name in functions:
        function = module.get_function(name)
        _held.append(function)
        # First too many arguments, which the wrapper around a typed function refuses and
        # says how many it takes; then that many of a wrong type, which makes it convert.
        message = _call(function, name, ("kernel-ci",) * _MANY)
        wants = re.search(r"[Ee]xpect(?:ed|s) (\d+)", message)
        if wants is not None and 0 < int(wants[1]) < _MANY:
            _call(function, name, ("kernel-ci",) * int(wants[1]))
    _say("done")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
