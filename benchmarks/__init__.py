"""Benchmarks as commands: each prints a table and writes JSON."""
