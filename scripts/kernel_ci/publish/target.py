"""Where to publish: the real Hub, a Hub's URL, or a local Hub's folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from kernel_ci.errors import InputError

#: What a local Hub gets in place of the user's token, which must not be sent to it.
_LOCAL_TOKEN = "local-hub"


@dataclass(frozen=True)
class Target:
    """A Hub that can be reached.

    Attributes:
        endpoint: Its URL, or None for the one that huggingface_hub is configured for.
        token: The token for it, or None for the one that huggingface_hub finds.
        local: Whether it is a local Hub.
    """

    endpoint: str | None
    token: str | None
    local: bool

    def environment(self) -> dict[str, str]:
        """Return the environment variables that make clients in other processes use it."""
        if self.endpoint is None:
            return {}
        found = {"HF_ENDPOINT": self.endpoint}
        if self.local:
            found |= {"HF_HUB_DISABLE_XET": "1", "HF_TOKEN": str(self.token)}
        return found


@contextmanager
def connect(hub: str | None) -> Iterator[Target]:
    """Reach a Hub; the folder of a local one is served from this process meanwhile.

    Args:
        hub: A URL, a local Hub's folder (made if it does not exist), or None.

    Raises:
        InputError: The folder is not a local Hub, or the URL would show a token to others.
    """
    if hub is None:
        yield Target(None, None, local=False)
    elif "://" in hub:
        target = _at_url(hub)
        with _without_xet() if target.local else nullcontext():
            yield target
    else:
        from kernel_ci.hub.server import running

        with _without_xet(), running(Path(hub)) as endpoint:
            yield Target(endpoint, _LOCAL_TOKEN, local=True)


def _at_url(url: str) -> Target:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise InputError(
            "is no Hub's address",
            where="--hub",
            fix="give https://host, a local Hub's folder, or leave --hub out for the real Hub",
        )
    if parts.hostname in ("localhost", "127.0.0.1", "::1"):
        # A Hub that this user serves: `kernel-ci hub serve`, with a token of its own or none.
        token = os.environ.get("HF_TOKEN") or _LOCAL_TOKEN
        return Target(url.rstrip("/"), token, local=True)
    if parts.scheme != "https":
        raise InputError(
            "would carry the token in clear", where=f"--hub {url}", fix="use an https address"
        )
    return Target(url.rstrip("/"), None, local=False)


@contextmanager
def _without_xet() -> Iterator[None]:
    """Make large files go over LFS, as a local Hub has no Xet storage.

    huggingface_hub reads the variable when it is imported, which may have been before.
    """
    name = "HF_HUB_DISABLE_XET"
    before = os.environ.get(name)
    os.environ[name] = "1"
    loaded = sys.modules.get("huggingface_hub.constants")
    constant = getattr(loaded, name, None)
    if loaded is not None:
        setattr(loaded, name, True)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name)
        else:
            os.environ[name] = before
        later = sys.modules.get("huggingface_hub.constants")
        if later is not None:
            # Imported meanwhile, it took the variable for the user's.
            was_on = (before or "").upper() in ("1", "ON", "YES", "TRUE")
            value = constant if loaded is not None else was_on
            setattr(later, name, value)
