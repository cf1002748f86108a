"""The kernels below have suites of their own, which `kernel_ci.testing` runs."""

collect_ignore = ["wrong"]
