"""Audit built libraries: what they are, what they need, and which runtimes they fit.

Readers (`elf`, `macho`, `pe`, `directory`) collect facts, `judge` turns facts into
findings, and a report holds both; `variant` puts them together.
"""
