"""Testing built variants: the pytest plugin for kernels' suites, and the test stage."""
