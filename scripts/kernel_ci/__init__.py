"""kernel-ci: build, prove and publish every variant of a TVM FFI kernel.

The stages (plan, build, audit, test, gate, publish) read documents and write
documents; see `kernel_ci.documents`. All of them are reachable from the command line
(`kernel_ci.cli`), which is the interface that workflows and nox sessions use.
"""

__version__ = "0.1.0"
