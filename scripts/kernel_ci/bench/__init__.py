"""Kernel benchmarks: one build against another, in one run on one machine.

The benchmarks are those of the `kernels` client: `benchmarks/benchmark*.py` with classes
derived from `kernels.benchmark.Benchmark`.
"""
