"""What kernel-ci's own speed is measured with: `nox -s bench` runs it.

One module a subject. Each has `measure() -> list[Row]`; what is compared is measured
alternately in one run, and the fastest of several counts, as others use the machine too.
"""
