"""What people see of publishing: progress, and what changes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kernel_ci.publish.diff import Changes
from kernel_ci.publish.release import CARD, Release
from kernel_ci.report import human_size, human_time

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

#: Seconds between lines of progress where there is no terminal to draw on.
_INTERVAL = 15.0


class Meter:
    """Progress of an upload: a bar on a terminal, now and then a line in a log."""

    def __init__(self, console: Console):
        self._console = console
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._total = self._sent = 0
        self._told = self._started = 0.0

    def sent(self, count: int) -> None:
        """Take note of bytes that were sent; may be called from any thread."""
        self._sent += count
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=min(self._sent, self._total))
        elif self._total and time.monotonic() - self._told > _INTERVAL:
            self._told = time.monotonic()
            self._console.print(
                f"   {human_size(self._sent)} of {human_size(self._total)}", highlight=False
            )

    @contextmanager
    def upload(self, files: int, total: int) -> Iterator[None]:
        """Show the progress of one upload.

        Args:
            files: How many files it has.
            total: Their bytes.
        """
        from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

        self._total, self._sent = total, 0
        self._told = self._started = time.monotonic()
        if self._console.is_terminal:
            columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
            with Progress(*columns, console=self._console, transient=True) as progress:
                self._progress, self._task = progress, progress.add_task("", total=total)
                try:
                    yield
                finally:
                    self._progress = None
        else:
            yield
        took = time.monotonic() - self._started
        self._total = 0
        self._console.print(
            f"   {files} files of {human_size(total)}: {human_size(self._sent)} had to be uploaded"
            f" ({human_time(took)})",
            highlight=False,
        )


def show_changes(console: Console, release: Release, changes: Changes, url: str) -> None:
    """Print what publishing a release changes."""
    console.print(
        f"{release.kernel} {release.tag} -> {url}", markup=False, highlight=False, soft_wrap=True
    )
    if not changes:
        console.print("   published already; nothing to send", highlight=False)
        return
    added = sum(release.files[path].size for path in changes.add if path in release.files)
    for word, names in (
        ("new", changes.new),
        ("changed", changes.changed),
        ("dropped", changes.dropped),
        ("changed", changes.rewritten),
    ):
        for name in names:
            console.print(f"   {word:9} {name}", markup=False, highlight=False, soft_wrap=True)
    if changes.kept:
        console.print(f"   {'kept':9} {len(changes.kept)} variants", highlight=False)
    if changes.branch:
        console.print(
            f"   {release.branch}: {len(changes.add)} files ({human_size(added)}) to send,"
            f" {len(changes.delete)} to delete",
            highlight=False,
        )
    if changes.card:
        console.print(f"   main: {CARD}", highlight=False)
    if changes.tag:
        console.print(f"   tag {release.tag}", highlight=False)
