"""The cibuildwheel engine: a kernel's variant as a wheel, built in a manylinux container.

* `images`: which container and which toolchain, from `data/images.toml`.
* `stage`: a folder that cibuildwheel can build: sources, the CMake project, a pyproject.toml.
* `engine`: runs cibuildwheel, and turns its wheel into the variant directory and back.
* `check`: judges a wheel, from anyone.
"""
