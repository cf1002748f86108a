"""Publishing: an accepted verdict and its variant directories -> a release on the Hub.

A release is published in steps that can be broken off anywhere: clients see the former
state of a version or the new one, and running it again goes on.

1. Look at what is there, and refuse what must not be done (`diff`).
2. Send large files. Nothing names them yet.
3. One commit with everything, on the branch of the version, whose parent is what step 1
   saw. A version that is new gets its branch only when the commit exists: it is made on a
   branch that clients do not look at, and the version's branch is created at it.
4. Read back what is served (`verify`), tag it, and last put the card on main.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_ci.build import package
from kernel_ci.errors import InfrastructureError, InputError, KernelCIError, Rejected
from kernel_ci.gate import FILE as VERDICT_FILE
from kernel_ci.gate import Verdict
from kernel_ci.layout import receipt_file, variant_directory
from kernel_ci.plan import FILE as PLAN_FILE
from kernel_ci.plan import Plan, read_plan
from kernel_ci.publish import diff, signing, verify
from kernel_ci.publish.diff import Api, Changes, Remote
from kernel_ci.publish.hubclient import MAIN, Conflict, Hub, Missing, Moved, Refs, decode
from kernel_ci.publish.release import (
    ATTESTATION,
    CARD,
    FILE,
    File,
    Prepared,
    assemble,
    digest_file,
    public_names,
)
from kernel_ci.publish.report import Meter, show_changes
from kernel_ci.publish.target import Target, connect
from kernel_ci.receipts import Receipt

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete
    from rich.console import Console
    from sigstore.verify import Verifier

    from kernel_ci.publish.transport import Retry


@dataclass(frozen=True)
class Published:
    """What became of one kernel.

    Attributes:
        kernel: The kernel's name.
        repo_id: Its repository.
        branch: The branch of the release.
        commit: The commit that holds it now, None where nothing was published.
        files: Files in the release.
        bytes: Their size.
        tag: The release's tag.
        url: The page of the version, or of the pull request.
        changed: Whether anything was sent (or, in a dry run, would be).
    """

    kernel: str
    repo_id: str
    branch: str
    commit: str | None
    files: int
    bytes: int
    tag: str
    url: str
    changed: bool


@dataclass(frozen=True)
class Options:
    """What the publisher wants.

    Attributes:
        replace: Put other content in place of what a version has.
        drop: Let variants vanish that a version has.
        allow_partial: Publish to the real Hub though the caller left variants out.
        pull_request: Propose the release in pull requests.
        unsigned: Do not sign.
        signer: Whose signature every variant must have, or None for whoever signs here.
        retry: How patient the client is; None for the usual.
        verifier: Whom to trust with signatures; None for sigstore's public services.
    """

    replace: bool = False
    drop: bool = False
    allow_partial: bool = False
    pull_request: bool = False
    unsigned: bool = False
    signer: signing.Signer | None = None
    retry: Retry | None = None
    verifier: Verifier | None = None


def publish(
    folder: Path,
    target: Target,
    *,
    dry_run: bool = False,
    options: Options | None = None,
    console: Console | None = None,
) -> list[Published]:
    """Publish every kernel of a run.

    Args:
        folder: The run's folder, with plan, accepted verdict and variant directories.
        target: The Hub to publish to.
        dry_run: Only tell what would change.
        options: What the publisher wants.
        console: Where progress goes; standard error by default.

    Raises:
        InputError: There is no verdict, a kernel names no repository, or the publisher may
            not do this.
        Rejected: The verdict is not accepted, or is of another plan; a variant directory is
            not the one it is about; the published version must not be changed like this; or
            what the Hub serves afterwards is something else.
        InfrastructureError: The Hub did not answer, or another publisher was faster.
    """
    options = options or Options()
    if console is None:
        from rich.console import Console

        console = Console(stderr=True)
    token = None if target.local or dry_run or options.unsigned else signing.identity()
    signer = options.signer or (signing.signer_in(token) if token else None)
    releases = prepare(folder, target, options, signer=signer)
    done = []
    for prepared in releases:
        meter = Meter(console)
        with Hub(
            target,
            prepared.release.repo_id,
            retry=options.retry,
            notify=lambda text: console.print(
                f"   {text}", markup=False, highlight=False, soft_wrap=True
            ),
            uploaded=meter.sent,
        ) as hub:
            publisher = _Publisher(prepared, hub, options, console, meter)
            if token is not None:
                publisher.sign = signing.sign_here
                publisher.attest = signing.attest_here
            if signer is not None:
                publisher.check = lambda variants: signing.verify(
                    variants, signer, options.verifier or signing.trusted()
                )
                publisher.check_attestation = lambda files, bundle: signing.verify_attestation(
                    files, bundle, signer, options.verifier or signing.trusted()
                )
            if dry_run:
                done.append(publisher.rehearse())
            elif options.pull_request:
                done.append(publisher.propose())
            else:
                done.append(publisher.publish())
    return done


def prepare(
    folder: Path,
    target: Target,
    options: Options,
    *,
    signer: signing.Signer | None = None,
) -> list[Prepared]:
    """Check a run, and lay out the release of each of its kernels.

    Raises:
        InputError: There is no verdict, or a kernel names no repository.
        Rejected: The run is not fit to be published.
    """
    plan = read_plan(folder / PLAN_FILE)
    verdict = Verdict.read(folder / VERDICT_FILE)
    check(plan, verdict, folder)
    if not target.local:
        _refuse_reused(plan, folder)
    if plan.partial and not target.local and not options.allow_partial:
        left_out = [item.id for item in plan.excluded if item.by != "kernel"]
        raise Rejected(
            f"the run left out {len(left_out)} variants that the kernels support, such as"
            f" {left_out[0]}",
            where=folder / PLAN_FILE,
            fix="plan all of them, or say --allow-partial",
        )
    try:
        return [
            assemble(plan, kernel, verdict, folder, signer=signer.workflow if signer else None)
            for kernel in plan.kernels
        ]
    except OSError as error:
        raise InputError(
            f"the release cannot be laid out here: {error.strerror}",
            where=error.filename or folder,
            fix="make space, or copy the run to a folder that you may write to",
        ) from None


def rehearse(folder: Path, console: Console) -> bool:
    """Publish a run to a local Hub of its own, and load from it what this machine can load.

    Args:
        folder: The run's folder.
        console: Where progress goes.

    Returns:
        Whether all that can be loaded here works.

    Raises:
        KernelCIError: As for `publish`.
    """
    plan = read_plan(folder / PLAN_FILE)
    console.print("rehearsal, on a Hub of its own:", highlight=False)
    with (
        tempfile.TemporaryDirectory(prefix="kernel-ci-rehearsal-") as hub,
        connect(hub) as target,
    ):
        done = publish(folder, target, console=console)
        loaded = [verify.load(plan, it.kernel, it.repo_id, target, console) for it in done]
    return all(loaded)


def check(plan: Plan, verdict: Verdict, folder: Path) -> None:
    """Refuse what the gate has not accepted, or what has changed since."""
    if verdict.plan != plan.id:
        raise Rejected("the verdict is of another plan", where=folder, fix="run the gate again")
    if not verdict.accepted:
        raise Rejected(
            "the gate did not accept this run", where=folder, fix="see `kernel-ci gate` for why"
        )
    digests = {cell.id: cell.digest for cell in verdict.cells}
    for cell in plan.cells:
        if digests.get(cell.id) is None:
            raise Rejected(
                "the verdict says nothing about it", where=cell.id, fix="run the gate again"
            )
        directory = variant_directory(folder, cell)
        try:
            found = package.digest(directory)
        except (OSError, ValueError):
            found = None
        if found != digests[cell.id]:
            raise Rejected(
                "the variant directory changed after the verdict",
                where=cell.id,
                fix="build and test it again",
            )


def _refuse_reused(plan: Plan, folder: Path) -> None:
    """Refuse evidence that a run took over from another: nothing proves who left it there."""
    for cell in plan.cells:
        for stage in cell.stages:
            file = receipt_file(folder, cell, stage)
            # The verdict is what counts; a receipt need not be there any more.
            receipt = Receipt.read(file) if file.exists() else None
            if receipt is not None and receipt.reused is not None:
                raise Rejected(
                    f"its {stage} was taken over from the run {receipt.reused}",
                    where=cell.id,
                    fix="run the pipeline with --fresh before publishing",
                )


def _nothing(variants: Sequence[Path]) -> None:
    """Neither sign nor check."""


def _no_attestation(files: Mapping[str, File], bundle: Path) -> None:
    """Neither attest nor check."""


class _Publisher:
    """The steps for one kernel."""

    def __init__(
        self, prepared: Prepared, hub: Hub, options: Options, console: Console, meter: Meter
    ):
        self.release = prepared.release
        self.folder = prepared.folder
        self.manifest: File = digest_file(prepared.folder / FILE)
        self.hub = hub
        self.options = options
        self.console = console
        self.meter = meter
        self.sign: Callable[[Sequence[Path]], None] = _nothing
        self.check: Callable[[Sequence[Path]], None] = _nothing
        self.attest: Callable[[Mapping[str, File], Path], None] = _no_attestation
        self.check_attestation: Callable[[Mapping[str, File], Path], None] = _no_attestation

    # -- the three ways ----------------------------------------------------------------

    def rehearse(self) -> Published:
        """Tell what publishing would change."""
        remote, changes = self._judged()
        return self._done(remote.head if remote else None, changed=bool(changes))

    def publish(self) -> Published:
        """Publish, or go on where a former run was broken off."""
        remote, changes = self._judged()
        if remote is None:
            self.hub.create()
            remote = self._look()
            if remote is None:
                raise InfrastructureError(
                    "the repository was created, and is not there",
                    where=self.release.repo_id,
                    fix="run it again",
                )
        signed = self._signed(changes)
        commit = remote.head
        if commit is None or changes.branch or signed:
            commit = self._commit(remote, changes, signed)
        if changes.tag:
            self._tag(commit)
        if changes.card:
            self._card(remote.main)
        for name in remote.staging:
            self._remove(name)
        return self._done(commit, changed=bool(changes or signed))

    def propose(self) -> Published:
        """Open pull requests for the release: one for the version, one for the card."""
        release = self.release
        remote = self._look()
        if remote is None or remote.head is None:
            raise InputError(
                f"there is no branch {release.branch} yet, and pull requests need one",
                where=release.repo_id,
                fix="ask the owners to create the kernel repository and that branch",
            )
        changes = self._compared(remote)
        open_already = self.hub.pull_requests()
        if not changes.branch:
            return self._done(remote.head, changed=False)
        if (url := open_already.get(self._title)) is not None:
            return self._done(None, changed=False, url=url)
        signed = self._signed(changes)
        operations = self._operations(changes, signed)
        self._upload(operations, release.branch, propose=True)
        proposed = self.hub.commit(
            release.branch,
            operations,
            parent=remote.head,
            title=self._title,
            text=self._text,
            propose=True,
        )
        self._read_back(proposed.commit, operations)
        if changes.card and f"{self._title}: card" not in open_already:
            self.hub.commit(
                MAIN,
                [self._add(CARD)],
                parent=remote.main,
                title=f"{self._title}: card",
                propose=True,
            )
        return self._done(None, changed=True, url=proposed.url)

    # -- looking -----------------------------------------------------------------------

    def _look(self) -> Remote | None:
        """Return what the Hub has, None where there is no repository."""
        refs = self.hub.refs()
        if refs is None:
            return None
        main = refs.branches.get(MAIN)
        if main is None:
            raise InfrastructureError(
                f"the repository has no branch {MAIN}",
                where=self.release.repo_id,
                fix="run it again; if it stays, delete the repository, which holds nothing",
            )
        head = refs.branches.get(self.release.branch)
        on_main = self.hub.tree(main)
        return Remote(
            main=main,
            card=on_main.get(CARD),
            head=head,
            files=self.hub.tree(head) if head else on_main,
            newest=_newest(refs),
            tags=refs.tags.keys(),
            staging=[name for name in refs.branches if name.startswith(self._staging)],
        )

    def _judged(self) -> tuple[Remote | None, Changes]:
        """Return what the Hub has and what changes, after refusing what must not change."""
        remote = self._look()
        return remote, self._compared(remote)

    def _compared(self, remote: Remote | None) -> Changes:
        if remote is None:
            remote = Remote(main="", card=None, head=None, files={}, newest=None, tags=())
        changes = diff.compare(self.release, self.manifest, remote)
        show_changes(self.console, self.release, changes, self._url)
        api = self._api(remote) if remote.head and changes.branch else None
        diff.refuse(
            self.release,
            changes,
            api,
            replace=self.options.replace,
            drop=self.options.drop,
        )
        if self.release.source.dirty:
            self.console.print("   note: built from files that are not committed", highlight=False)
        return changes

    def _api(self, remote: Remote) -> Api:
        """Return the API of the published version, from its files."""
        assert remote.head is not None
        public: dict[str, frozenset[str] | None] = {}
        read: dict[str, frozenset[str] | None] = {}
        with tempfile.TemporaryDirectory(prefix="kernel-ci-api-") as folder:
            for path, served in remote.files.items():
                variant = diff.variant_of(path)
                if variant is None or path != f"build/{variant}/__init__.py":
                    continue
                if served.git not in read:
                    init = Path(folder) / "__init__.py"
                    init.write_bytes(self.hub.content(remote.head, path, served))
                    names = public_names(init)
                    read[served.git] = None if names is None else frozenset(names)
                public[variant] = read[served.git]
        functions = None
        if FILE in remote.files:
            functions = diff.functions_of(
                decode(self.hub.content(remote.head, FILE, remote.files[FILE]))
            )
        return Api(public, functions)

    # -- changing ----------------------------------------------------------------------

    def _signed(self, changes: Changes) -> tuple[str, ...]:
        """Sign and attest what is sent and what is there without; return what to send of it."""
        build = self.folder / "build"
        sent = [build / name for name in sorted({*changes.new, *changes.changed})]
        kept = [build / name for name in changes.unsigned]
        self.sign([path for path in sent + kept if not (path / package.SIGNATURE).exists()])
        signed = [path for path in sent + kept if (path / package.SIGNATURE).exists()]
        self.check(sent + kept)
        made = [f"build/{path.name}/{package.SIGNATURE}" for path in signed]
        bundle = self.folder / ATTESTATION
        if not changes.attested:
            self.attest(self._wanted, bundle)
        if bundle.exists():
            self.check_attestation(self._wanted, bundle)
            made.append(ATTESTATION)
        return tuple(made)

    def _operations(
        self, changes: Changes, signed: Sequence[str]
    ) -> list[CommitOperationAdd | CommitOperationDelete]:
        from huggingface_hub import CommitOperationDelete

        deleted = [path for path in changes.delete if path not in signed]
        return [
            *(self._add(path) for path in (*changes.add, *signed)),
            *(CommitOperationDelete(path, is_folder=False) for path in deleted),
        ]

    def _add(self, path: str) -> CommitOperationAdd:
        from huggingface_hub import CommitOperationAdd

        operation = CommitOperationAdd(path, self.folder / path)
        if path in self.release.files:
            # Known already; and the Hub refuses a large file that has changed since.
            operation.upload_info.sha256 = bytes.fromhex(self.release.files[path].sha256)
        return operation

    def _upload(
        self,
        operations: Sequence[CommitOperationAdd | CommitOperationDelete],
        revision: str,
        *,
        propose: bool = False,
    ) -> None:
        from huggingface_hub import CommitOperationAdd

        added = [found for found in operations if isinstance(found, CommitOperationAdd)]
        with self.meter.upload(len(added), sum(found.upload_info.size for found in added)):
            self.hub.upload(added, revision, propose=propose)

    def _commit(self, remote: Remote, changes: Changes, signed: Sequence[str]) -> str:
        """Make the one commit of the release visible, and return it."""
        operations = self._operations(changes, signed)
        branch = self.release.branch
        if remote.head is not None:
            self._upload(operations, branch)
            return self._commit_to(branch, remote.head, operations)
        self._upload(operations, MAIN)
        # Of its own, so that two publishers do not meet there.
        staging = f"{self._staging}{secrets.token_hex(4)}"
        try:
            self.hub.create_branch(staging, remote.main)
        except Conflict:
            if not self._is_there(lambda refs: staging in refs.branches):
                raise
        try:
            commit = self._commit_to(staging, remote.main, operations)
            self.hub.create_branch(branch, commit)
        except Conflict:
            self._remove(staging)
            return self._holding(branch)
        except Missing:
            # Whoever has published the version clears staging branches away, ours too.
            if not self._is_there(lambda refs: branch in refs.branches):
                raise
            return self._holding(branch)
        self._remove(staging)
        return commit

    def _commit_to(
        self,
        branch: str,
        parent: str,
        operations: Sequence[CommitOperationAdd | CommitOperationDelete],
    ) -> str:
        """Commit to a branch that is at `parent`, and read back what is served then."""
        try:
            commit = self.hub.commit(
                branch, operations, parent=parent, title=self._title, text=self._text
            ).commit
        except Moved:
            commit = self._holding(branch)
        self._read_back(commit, operations)
        return commit

    def _read_back(
        self,
        commit: str,
        operations: Sequence[CommitOperationAdd | CommitOperationDelete],
    ) -> None:
        """Compare what is served with the release, and with what was just sent."""
        from huggingface_hub import CommitOperationAdd

        paths = [it.path_in_repo for it in operations if isinstance(it, CommitOperationAdd)]
        wanted = self._wanted
        # Only signatures are in no release; what was hashed before is not read again.
        sent = {path: wanted.get(path) or digest_file(self.folder / path) for path in paths}
        where = f"{self.release.repo_id} {self.release.branch} at {commit}"
        verify.read_back(self.hub, commit, {**wanted, **sent}, sent, where=where)

    def _holding(self, branch: str) -> str:
        """Return the commit of a branch where that is the release after all.

        Our own commit may have been made though its answer was lost; or another publisher had
        the same release.

        Raises:
            Moved: Something else is there.
        """
        refs = self.hub.refs()
        commit = refs.branches.get(branch) if refs else None
        if commit is not None and not verify.listed_faults(self._wanted, self.hub.tree(commit)):
            return commit
        raise Moved(
            "another publisher changed it meanwhile; nothing of this release is visible",
            where=f"{self.release.repo_id} {branch}",
            fix="run it again: it compares with what is there now",
        )

    def _tag(self, commit: str) -> None:
        try:
            self.hub.create_tag(self.release.tag, commit, self._title)
        except Conflict:
            if not self._is_there(lambda refs: self.release.tag in refs.tags):
                raise

    def _is_there(self, test: Callable[[Refs], bool]) -> bool:
        """Tell whether what conflicts is there: ours, whose answer was lost."""
        refs = self.hub.refs()
        return refs is not None and test(refs)

    def _card(self, main: str) -> None:
        """Put the card on main, which must be at a commit."""
        try:
            self.hub.commit(MAIN, [self._add(CARD)], parent=main, title=f"{self._title}: card")
        except Moved:
            remote = self._look()
            if remote is None or remote.card is None or not remote.card.holds(self.release.card):
                raise

    def _remove(self, staging: str) -> None:
        """Delete a staging branch. Failing is told, and no reason to fail: it is not seen."""
        try:
            self.hub.delete_branch(staging)
        except KernelCIError as error:
            self.console.print(f"   note: {error}", markup=False, highlight=False, soft_wrap=True)

    # -- telling -----------------------------------------------------------------------

    @property
    def _wanted(self) -> dict[str, File]:
        """Every file of the version's branch, but for the signatures."""
        return {**self.release.files, FILE: self.manifest}

    @property
    def _staging(self) -> str:
        """How branches begin on which this version's first commit is made.

        Clients look at branches named `v<number>` only.
        """
        return f"staging-{self.release.branch}-"

    @property
    def _title(self) -> str:
        return f"{self.release.kernel} {self.release.tag}"

    @property
    def _text(self) -> str:
        """The commit's message: where the release comes from."""
        source = self.release.source
        lines = [
            f"Release digest: {self.release.digest}",
            f"Sources: {source.digest}",
        ]
        if source.commit:
            lines.append(f"Commit: {source.commit}{' and changes' if source.dirty else ''}")
        if (run := _run_url()) is not None:
            lines.append(f"Run: {run}")
        return "\n".join(lines)

    @property
    def _url(self) -> str:
        return f"{self.hub.url}/tree/{self.release.branch}"

    def _done(self, commit: str | None, *, changed: bool, url: str | None = None) -> Published:
        return Published(
            kernel=self.release.kernel,
            repo_id=self.release.repo_id,
            branch=self.release.branch,
            commit=commit,
            files=len(self.release.files) + 1,
            bytes=self.release.size,
            tag=self.release.tag,
            url=url or self._url,
            changed=changed,
        )


def _newest(refs: Refs) -> int | None:
    """Return the highest version that has a branch, by the client's rule."""
    found = [int(name[1:]) for name in refs.branches if name[:1] == "v" and name[1:].isdecimal()]
    return max(found, default=None)


def _run_url() -> str | None:
    """Return the page of the run of GitHub Actions that this is part of."""
    try:
        return (
            f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}"
            f"/actions/runs/{os.environ['GITHUB_RUN_ID']}"
        )
    except KeyError:
        return None
