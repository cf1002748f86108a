"""The HTTP client that huggingface_hub uses while something is published.

huggingface_hub (2.4.0) waits for ever for an answer, and repeats some requests and not
others. Here each request has a time limit, and what may be repeated is repeated, with one
policy for all. It is imported lazily, as it needs httpx2, which huggingface_hub brings.
"""

from __future__ import annotations

import functools
import random
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2
from huggingface_hub.utils._http import parse_ratelimit_headers

from kernel_ci.errors import InfrastructureError

#: Asked by huggingface_hub for its statistics; it goes on without an answer.
_ASIDE = "/api/agent-harnesses"

_PASSING = frozenset({408, 429, 500, 502, 503, 504})
_DROPPED = (httpx2.TimeoutException, httpx2.NetworkError, httpx2.RemoteProtocolError)


@dataclass(frozen=True)
class Retry:
    """How patient a client is; times are in seconds.

    Attributes:
        attempts: How often a request is sent before it is given up.
        first: Pause after the first attempt; each further one is twice as long.
        longest: The longest pause.
        patience: The longest pause that the Hub may ask for. Its limits are counted over
            five minutes.
        timeout: How long the Hub may be silent. A commit with many files takes it a while.
        sleep: Pauses.
    """

    attempts: int = 6
    first: float = 1.0
    longest: float = 30.0
    patience: float = 330.0
    timeout: float = 120.0
    sleep: Callable[[float], None] = time.sleep


@functools.cache
def certificates() -> ssl.SSLContext:
    """Return the trusted certificates; reading them takes 70 ms, and clients come and go."""
    return httpx2.create_ssl_context()


class Unanswered(InfrastructureError):
    """A request got no usable answer, however often it was sent."""


class Client(httpx2.Client):
    """An HTTP client that repeats requests that were not answered.

    Repeating is safe: commits name their parent, so that a second one is refused where the
    first had succeeded, and what else is created may exist already. The exceptions:

    * Opening a pull request is sent once, as a second one would open another.
    * The body of an upload is a file, which huggingface_hub itself rewinds and sends again.
    * A streamed answer is read by whoever asked for it.

    Args:
        retry: How patient it is.
        notify: Told what went wrong before a request is repeated.
        uploaded: Told each number of bytes of a file that has been sent.
        hooks: huggingface_hub's own event hooks.
        secrets: Gets each token that is sent.
    """

    def __init__(
        self,
        retry: Retry,
        notify: Callable[[str], None],
        uploaded: Callable[[int], None],
        hooks: Mapping[str, list[Callable[..., Any]]],
        secrets: set[str],
    ):
        super().__init__(
            verify=certificates(),
            timeout=retry.timeout,
            follow_redirects=True,
            event_hooks=dict(hooks),
        )
        self.retry = retry
        self.notify = notify
        self.uploaded = uploaded
        self.secrets = secrets

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request, again where that is safe and may help.

        Raises:
            Unanswered: There was no usable answer.
        """
        if authorization := request.headers.get("authorization"):
            self.secrets.add(authorization.removeprefix("Bearer "))
        if options.get("stream") or request.url.path == _ASIDE:
            return super().send(request, **options)
        if not isinstance(request.stream, httpx2.ByteStream):
            return self._upload(request, **options)
        attempts = 1 if _opens_pull_request(request) else self.retry.attempts
        pause = self.retry.first
        for attempt in range(1, attempts + 1):
            asked: float | None = None
            try:
                response = super().send(request, **options)
            except _DROPPED as error:
                fault = _words(error)
            else:
                found = _fault(response)
                if found is None:
                    return response
                fault, asked = found, asked_pause(response.headers)
            if attempt == attempts or (asked or 0) > self.retry.patience:
                break
            # Several jobs that failed together should not come back together.
            wait = pause * random.uniform(0.8, 1.2) if asked is None else asked
            self.notify(f"{describe(request)}: {fault}; again in {wait:.0f} s")
            self.retry.sleep(wait)
            pause = min(pause * 2, self.retry.longest)
        raise _unanswered(request, fault, attempt, asked)

    def _upload(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        request.stream = _Counted(request.stream, self.uploaded)
        response = super().send(request, **options)
        fault, asked = _fault(response), asked_pause(response.headers)
        # huggingface_hub would wait as long as it is told to.
        if fault is not None and (asked or 0) > self.retry.patience:
            raise _unanswered(request, fault, 1, asked)
        return response


class _Counted(httpx2.SyncByteStream):
    """The body of an upload, reported as it is sent."""

    def __init__(self, body: Any, uploaded: Callable[[int], None]):
        self.body = body
        self.uploaded = uploaded

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self.body:
            yield chunk
            self.uploaded(len(chunk))


def describe(request: httpx2.Request) -> str:
    """Return a request for people. The query is left out: it may hold a signature."""
    return f"{request.method} {request.url.copy_with(query=None, userinfo=b'')}"


def asked_pause(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that an answer asks to wait (`Retry-After`, `RateLimit`), if any."""
    limit = parse_ratelimit_headers(headers)
    if limit is not None and limit.remaining == 0:
        return float(limit.reset_in_seconds) + 1
    after = headers.get("retry-after", "").strip()
    if after.isdecimal():
        return float(after)
    try:
        moment = parsedate_to_datetime(after)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return max(0.0, (moment - datetime.now(timezone.utc)).total_seconds())


def _fault(response: httpx2.Response) -> str | None:
    """Return what is wrong with an answer in a way that may pass, if anything is."""
    if response.status_code in _PASSING:
        return f"{response.status_code} {response.reason_phrase}"
    # Those of LFS are application/vnd.git-lfs+json.
    if response.is_success and "json" in response.headers.get("content-type", ""):
        try:
            response.json()
        except ValueError:
            return "the answer was cut off"
    return None


def _unanswered(
    request: httpx2.Request, fault: str, attempts: int, asked: float | None
) -> Unanswered:
    tried = f" ({attempts} attempts)" if attempts > 1 else ""
    return Unanswered(
        f"the Hub gave no usable answer: {fault}{tried}",
        where=describe(request),
        fix=_advice(request, asked),
    )


def _opens_pull_request(request: httpx2.Request) -> bool:
    return "/commit/" in request.url.path and "create_pr" in request.url.params


def _words(error: Exception) -> str:
    if isinstance(error, httpx2.ConnectError):
        return f"no connection ({error})"
    if isinstance(error, httpx2.TimeoutException):
        return "timed out"
    if isinstance(error, httpx2.RemoteProtocolError):
        return "the answer was cut off"
    return f"the connection broke ({error})" if str(error) else "the connection broke"


def _advice(request: httpx2.Request, asked: float | None) -> str:
    if _opens_pull_request(request):
        return (
            "whether the pull request was opened is not known; run it again: one that is"
            " open already is not opened twice"
        )
    if asked is not None and asked > 0:
        return f"the Hub asks to wait {asked:.0f} s; run it again then, it goes on where it was"
    return "run it again later: it goes on where it was, and clients see no half release"
