"""The Hub, as publishing needs it: huggingface_hub's calls, with errors in users' terms.

huggingface_hub is imported when a client is opened, never before.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from kernel_ci.errors import InfrastructureError, InputError, KernelCIError, Rejected
from kernel_ci.publish.diff import Served
from kernel_ci.publish.release import digest_bytes
from kernel_ci.publish.target import Target

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    from kernel_ci.publish.transport import Retry

MAIN = "main"
TYPE = "kernel"

#: Where an identity is exchanged for a token (RFC 8693).
_EXCHANGE = "/oauth/token"

_CHUNK = 1 << 20
#: What may be a secret in a text that the Hub or a library wrote.
_SECRET = re.compile(
    r"hf_[A-Za-z0-9_]{6,}|Bearer\s+\S+|eyJ[\w-]+\.[\w-]+\.[\w-]*|(?<=\?)\S*(?:[Ss]ignature|token)=\S*"
)

T = TypeVar("T")


class Conflict(InfrastructureError):
    """What should be created is there already, or another change is in the way."""


class Missing(InputError):
    """What is asked for is not there, or this identity may not see it."""


class Moved(InfrastructureError):
    """Another publisher committed first."""


@dataclass(frozen=True)
class Refs:
    """Branches and tags of a repository, each with its commit."""

    branches: dict[str, str]
    tags: dict[str, str]


@dataclass(frozen=True)
class Committed:
    """A commit that was made.

    Attributes:
        commit: Its id.
        url: Its page, or that of the pull request.
    """

    commit: str
    url: str


class Hub:
    """A connection to one repository on a Hub; use it as a context manager.

    Args:
        target: The Hub.
        repo_id: The repository.
        retry: How patient it is; None for the usual.
        notify: Told what went wrong before a request is repeated.
        uploaded: Told each number of bytes of a file that has been sent.
    """

    def __init__(
        self,
        target: Target,
        repo_id: str,
        *,
        retry: Retry | None = None,
        notify: Callable[[str], None] = lambda text: None,
        uploaded: Callable[[int], None] = lambda count: None,
    ):
        self.target = target
        self.repo_id = repo_id
        self.retry = retry
        self.notify = notify
        self.uploaded = uploaded

    def __enter__(self) -> Hub:
        from huggingface_hub import HfApi

        from kernel_ci.publish.transport import Retry

        self._secrets: set[str] = set()
        self._patience = self.retry or Retry()
        self._open = ExitStack()
        self._open.enter_context(
            _client(self._patience, self._notify, self.uploaded, self._secrets)
        )
        self._open.enter_context(_quiet())
        self._api = HfApi(
            endpoint=self.target.endpoint, token=self.target.token, library_name="kernel-ci"
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    @property
    def url(self) -> str:
        """The repository's page."""
        return f"{self._api.endpoint}/{TYPE}s/{self.repo_id}"

    # -- reading -----------------------------------------------------------------------

    def refs(self) -> Refs | None:
        """Return branches and tags, None where there is no such repository."""

        def ask() -> Refs | None:
            from huggingface_hub.errors import HfHubHTTPError

            try:
                found = self._api.list_repo_refs(self.repo_id, repo_type=TYPE)
            except HfHubHTTPError as error:
                if error.response.status_code == 404:
                    return None
                raise
            return Refs(
                {ref.name: ref.target_commit for ref in found.branches},
                {ref.name: ref.target_commit for ref in found.tags},
            )

        return self._told("read branches", ask)

    def tree(self, revision: str) -> dict[str, Served]:
        """Return the files of a revision by path."""

        def ask() -> dict[str, Served]:
            from huggingface_hub.hf_api import RepoFile

            return {
                entry.path: Served(
                    entry.size, entry.blob_id, entry.lfs.sha256 if entry.lfs else None
                )
                for entry in self._api.list_repo_tree(
                    self.repo_id, recursive=True, revision=revision, repo_type=TYPE
                )
                if isinstance(entry, RepoFile)
            }

        return self._told("list files", ask)

    def content(self, revision: str, path: str, listed: Served) -> bytes:
        """Return a small file.

        Args:
            revision: The revision.
            path: The file's path.
            listed: How it is listed, which its content must match.
        """

        def ask() -> bytes:
            from huggingface_hub import get_session, hf_raise_for_status

            answer = get_session().get(self._file(revision, path), headers=self._headers())
            hf_raise_for_status(answer)
            if not listed.holds(digest_bytes(answer.content)):
                raise InfrastructureError(
                    "other content is served than is listed",
                    where=path,
                    fix="run it again later",
                )
            return answer.content

        return self._again(f"read {path}", ask)

    def sha256(self, revision: str, path: str) -> str:
        """Return the SHA-256 (hex) of a file as it is served; it is never held in memory."""

        def ask() -> str:
            from huggingface_hub import get_session, hf_raise_for_status

            digest = hashlib.sha256()
            with get_session().stream(
                "GET", self._file(revision, path), headers=self._headers()
            ) as answer:
                hf_raise_for_status(answer)
                for chunk in answer.iter_bytes(_CHUNK):
                    digest.update(chunk)
            return digest.hexdigest()

        return self._again(f"read {path}", ask)

    def pull_requests(self) -> dict[str, str]:
        """Return the pages of open pull requests by title, as far as the Hub tells."""

        def ask() -> dict[str, str]:
            from huggingface_hub import get_session, hf_raise_for_status

            # huggingface_hub 2.4.0 has no call for this on repositories of type kernel.
            answer = get_session().get(
                f"{self._api.endpoint}/api/{TYPE}s/{self.repo_id}/discussions",
                params={"type": "pull_request", "status": "open"},
                headers=self._headers(),
            )
            if answer.status_code == 404:
                return {}
            hf_raise_for_status(answer)
            return {
                str(found["title"]): f"{self.url}/discussions/{found['num']}"
                for found in answer.json()["discussions"]
                if found["isPullRequest"] and found["status"] == "open"
            }

        return self._told("list pull requests", ask)

    # -- writing -----------------------------------------------------------------------

    def create(self) -> None:
        """Create the repository; it may be there already."""

        def send() -> None:
            self._api.create_repo(self.repo_id, repo_type=TYPE)

        with suppress(Conflict):
            self._told("create the repository", send)

    def create_branch(self, name: str, commit: str) -> None:
        """Create a branch at a commit.

        Raises:
            Conflict: The branch exists.
        """
        self._told(
            f"create branch {name}",
            lambda: self._api.create_branch(
                self.repo_id, branch=name, revision=commit, repo_type=TYPE
            ),
        )

    def delete_branch(self, name: str) -> None:
        """Delete a branch."""
        self._told(
            f"delete branch {name}",
            lambda: self._api.delete_branch(self.repo_id, branch=name, repo_type=TYPE),
        )

    def create_tag(self, name: str, commit: str, message: str) -> None:
        """Create a tag at a commit.

        Raises:
            Conflict: The tag exists.
        """
        self._told(
            f"create tag {name}",
            lambda: self._api.create_tag(
                self.repo_id, tag=name, tag_message=message, revision=commit, repo_type=TYPE
            ),
        )

    def upload(
        self, additions: Sequence[CommitOperationAdd], revision: str, *, propose: bool = False
    ) -> None:
        """Send the contents of large files; no commit names them yet.

        Args:
            additions: The files; huggingface_hub notes in them what was sent.
            revision: The branch that they are for.
            propose: They are for a pull request.
        """

        def send() -> None:
            self._api.preupload_lfs_files(
                self.repo_id,
                additions,
                repo_type=TYPE,
                revision=revision,
                create_pr=propose,
                free_memory=False,
                # A .gitignore on the Hub would make files of the release vanish.
                gitignore_content="",
            )

        self._told("upload files", send)

    def commit(
        self,
        branch: str,
        operations: Sequence[CommitOperationAdd | CommitOperationDelete],
        *,
        parent: str,
        title: str,
        text: str = "",
        propose: bool = False,
    ) -> Committed:
        """Make one commit, or open a pull request with it.

        Args:
            branch: The branch.
            operations: What changes.
            parent: The commit that the branch must be at.
            title: First line of the message.
            text: The rest of it.
            propose: Open a pull request for the branch.

        Raises:
            Moved: The branch is at another commit.
        """

        def send() -> Committed:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                done = self._api.create_commit(
                    self.repo_id,
                    operations,
                    commit_message=title,
                    commit_description=text,
                    repo_type=TYPE,
                    revision=branch,
                    parent_commit=parent,
                    create_pr=propose,
                )
            for warning in caught:
                if issubclass(warning.category, UserWarning):
                    self._notify(str(warning.message))
            return Committed(done.oid, (done.pr_url if propose else None) or done.commit_url)

        return self._told(f"commit to {branch}", send)

    # -- errors ------------------------------------------------------------------------

    def _headers(self) -> dict[str, str]:
        # Exported lazily, which mypy does not see.
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        headers: dict[str, str] = build_hf_headers(token=self._api.token)
        return headers

    def _file(self, revision: str, path: str) -> str:
        return f"{self.url}/resolve/{quote(revision, safe='')}/{quote(path)}"

    def _notify(self, text: str) -> None:
        self.notify(self._redacted(text))

    def _redacted(self, text: str) -> str:
        """Return a text without anything that could be a secret."""
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return _SECRET.sub("…", text)

    def _again(self, action: str, ask: Callable[[], T]) -> T:
        """Do something on the Hub, and again where a streamed answer broke off."""
        pause = self._patience.first
        for left in reversed(range(self._patience.attempts)):
            try:
                return self._told(action, ask)
            except InfrastructureError as error:
                if not left:
                    raise
                self.notify(f"{action}: {error.what}; again in {pause:.0f} s")
                self._patience.sleep(pause)
                pause = min(pause * 2, self._patience.longest)
        raise AssertionError("no attempt was made")

    def _told(self, action: str, ask: Callable[[], T]) -> T:
        """Do something on the Hub; errors are translated, and hold no secrets."""
        try:
            return ask()
        except Exception as error:
            raise self._translated(action, error) from None

    def _translated(self, action: str, error: Exception) -> KernelCIError:
        from httpx2 import HTTPError, HTTPStatusError
        from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled, OIDCError

        where = f"{self.repo_id}: {action}"
        if isinstance(error, ValueError) and "README.md" in str(error):
            return Rejected(
                self._redacted(" ".join(str(error).split())),
                where=where,
                fix="correct the metadata at the top of the kernel's CARD.md",
            )
        for cause in _causes(error):
            if isinstance(cause, KernelCIError):
                return type(cause)(
                    self._redacted(cause.what),
                    where=f"{self.repo_id}: {action}: {cause.where}",
                    fix=cause.fix,
                )
            if isinstance(cause, HTTPStatusError | HfHubHTTPError):
                if cause.response.request.url.path == _EXCHANGE:
                    return _untrusted(f"the Hub answered {cause.response.status_code}")
                said = getattr(cause, "server_message", None) or ""
                return explain(
                    cause.response.status_code,
                    self._redacted(" ".join(said.split())[:500]),
                    where=where,
                    repo_id=self.repo_id,
                )
            if isinstance(cause, UnicodeEncodeError) or "Illegal header value" in str(cause):
                # The only header here that a user sets.
                return InputError(
                    "the token has characters that no token has",
                    where="HF_TOKEN",
                    fix="set it again, without line breaks",
                )
            if isinstance(cause, OfflineModeIsEnabled):
                return InputError(
                    "HF_HUB_OFFLINE is set, so nothing can be published",
                    where=where,
                    fix="unset HF_HUB_OFFLINE",
                )
            if isinstance(cause, OIDCError):
                return _untrusted(self._redacted(str(cause)))
            if isinstance(cause, HTTPError):
                return InfrastructureError(
                    f"the connection broke: {self._redacted(str(cause)) or type(cause).__name__}",
                    where=where,
                    fix="run it again: it goes on where it was",
                )
        return InfrastructureError(
            "the Hub's answer makes no sense to this client:"
            f" {type(error).__name__}: {self._redacted(str(error))[:300]}",
            where=where,
            fix="run it again; if it stays, compare the releases of huggingface_hub",
        )


def _untrusted(why: str) -> InputError:
    """Return the error for a workflow whose identity got no token."""
    return InputError(
        f"the workflow's identity was not accepted: {why}",
        where="HF_OIDC_RESOURCE",
        fix="give the job `permissions: id-token: write`, and make the workflow a trusted"
        " publisher of the repository; docs/publishing.md shows both",
    )


def explain(status: int, said: str, *, where: str, repo_id: str) -> KernelCIError:
    """Return the error for an HTTP status of the Hub, in the user's terms. Pure.

    Args:
        status: The status.
        said: What the Hub said.
        where: What was being done.
        repo_id: The repository.
    """
    quoted = f": {said}" if said else ""
    if status == 401:
        return InputError(
            f"the Hub does not know who is publishing (401){quoted}",
            where=where,
            fix="in a workflow: set HF_OIDC_RESOURCE and `permissions: id-token: write`;"
            " else set HF_TOKEN to a valid token, or run `hf auth login`",
        )
    if status == 403:
        return InputError(
            f"this identity may not do that (403){quoted}",
            where=where,
            fix=f"ask the owners of {repo_id} for write access, or propose the release with"
            " --pull-request; creating kernel repositories must be granted to an account by"
            " Hugging Face",
        )
    if status == 404:
        return Missing(
            f"there is no such thing on the Hub (404){quoted}",
            where=where,
            fix="check general.hub.repo-id in build.toml, and that this identity may see it",
        )
    if status == 409:
        return Conflict(
            f"another change is in the way (409){quoted}",
            where=where,
            fix="run it again: it compares with what is there then",
        )
    if status == 412:
        return Moved(
            f"another publisher changed the branch meanwhile (412){quoted}",
            where=where,
            fix="run it again: it compares with what is there then",
        )
    if status == 413:
        return InputError(
            f"the Hub finds this too large (413){quoted}",
            where=where,
            fix="publish fewer or smaller variants, or ask Hugging Face for a higher limit;"
            " files of up to 10 MiB that are text travel in the commit itself",
        )
    if status == 429 or status >= 500:
        return InfrastructureError(
            f"the Hub is busy or broken ({status}){quoted}",
            where=where,
            fix="run it again later: it goes on where it was",
        )
    return Rejected(f"the Hub refused ({status}){quoted}", where=where)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what caused it: uploads are wrapped by huggingface_hub."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@contextmanager
def _client(
    retry: Retry,
    notify: Callable[[str], None],
    uploaded: Callable[[int], None],
    secrets: set[str],
) -> Iterator[None]:
    """Give huggingface_hub our HTTP client, and its own one back afterwards."""
    from huggingface_hub import get_session, set_client_factory

    # There is no public way back to what it had.
    from huggingface_hub.utils._http import default_client_factory

    from kernel_ci.publish.transport import Client

    hooks: Any = get_session().event_hooks
    # It closes a client whose connection failed, and asks for another one.
    set_client_factory(lambda: Client(retry, notify, uploaded, hooks, secrets))
    try:
        yield
    finally:
        set_client_factory(default_client_factory)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep huggingface_hub from printing: bars garble logs, and URLs may be signed."""
    from huggingface_hub import utils

    loggers = [logging.getLogger(name) for name in ("huggingface_hub", "httpx2")]
    levels = [logger.level for logger in loggers]
    bars = not utils.are_progress_bars_disabled()  # type: ignore[attr-defined]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    utils.disable_progress_bars()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if bars:
            utils.enable_progress_bars()  # type: ignore[attr-defined]


def decode(content: bytes) -> Any:
    """Return the value of a JSON text, None where it is none."""
    try:
        return json.loads(content)
    except ValueError:
        return None
