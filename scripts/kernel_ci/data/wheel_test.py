"""Runs in the container, in an environment with the wheel and nothing of kernel-ci.

Usage: wheel_test.py PACKAGE
"""

import importlib
import sys
from pathlib import Path

name = sys.argv[1]
package = importlib.import_module(name)
assert "site-packages" in Path(str(package.__file__)).parts, f"{name} is not the installed one"
importlib.import_module(f"{name}._ops")
print(f"{name}: the installed wheel was loaded by Python {sys.version.split()[0]}")
