"""kernel-ci on GitHub: everything that its workflows do beyond the stages themselves.

The YAML of `actions/` and `.github/workflows/` hands inputs over as environment variables
and calls `kernel-ci github <stage>`; all decisions are here.
"""
