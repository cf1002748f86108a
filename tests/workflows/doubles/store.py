"""What the stand-ins do: keep artifacts, record caches. See README.md."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

STORE = Path(os.environ["DOUBLES_STORE"])
#: Artifact names may not hold these (actions/toolkit, path-and-artifact-name-validation).
FORBIDDEN = set('":<>|*?\r\n\\/')


def upload() -> None:
    """Keep a folder's files under a name; hidden ones are left out, as by the real action."""
    name, folder = os.environ["NAME"], Path(os.environ["FOLDER"])
    if FORBIDDEN & set(name):
        sys.exit(f"no valid artifact name: {name}")
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(p.startswith(".") for p in path.relative_to(folder).parts)
    ]
    if not files:
        print(f"no files were found in {folder}")
        sys.exit(os.environ["MISSING"] == "error")
    target = STORE / "artifacts" / name
    if target.exists():
        if os.environ["OVERWRITE"] != "true":
            sys.exit(f"409: an artifact with the name {name} already exists")
        shutil.rmtree(target)
    for path in files:
        copy = target / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    print(f"uploaded {name}: {len(files)} files")


def download() -> None:
    """Fetch the artifact of a name, or all that match a pattern into a folder each."""
    meddle()
    name, pattern, folder = os.environ["NAME"], os.environ["PATTERN"], Path(os.environ["FOLDER"])
    if bool(name) == bool(pattern):
        sys.exit("exactly one of name and pattern must be set")
    if name:
        if not (STORE / "artifacts" / name).is_dir():
            sys.exit(f"artifact not found: {name}")
        shutil.copytree(STORE / "artifacts" / name, folder, dirs_exist_ok=True)
        return
    for found in sorted((STORE / "artifacts").glob("*")):
        if fnmatchcase(found.name, pattern):
            shutil.copytree(found, folder / found.name, dirs_exist_ok=True)
            print(f"downloaded {found.name}")


def meddle() -> None:
    """Run what a test wants to happen to the artifacts before this job gets them, once."""
    hook = STORE / f"before-{os.environ['GITHUB_JOB']}.py"
    if hook.exists():
        subprocess.run([sys.executable, str(hook), str(STORE / "artifacts")], check=True)
        hook.unlink()


def cache() -> None:
    """Record what was asked for."""
    request = {key: os.environ[key] for key in ("FOLDERS", "KEY", "RESTORE")}
    with (STORE / "caches.jsonl").open("a") as file:
        file.write(json.dumps(request) + "\n")


if __name__ == "__main__":
    {"upload": upload, "download": download, "cache": cache}[sys.argv[1]]()
