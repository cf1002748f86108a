"""Whether an environment of the repository asks a reviewer before a job runs in it."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request

#: Seconds for one answer of GitHub's API.
_TIMEOUT = 30.0


def why_not_reviewed(repository: str, environment: str) -> str | None:
    """Return why an environment gives no protection, or None where a reviewer is asked.

    GitHub makes an environment that a job names and that does not exist, without any rule;
    so what cannot be confirmed counts as unprotected.

    Args:
        repository: `<owner>/<name>`.
        environment: The environment's name.
    """
    base = os.environ.get("GITHUB_API_URL", "https://api.github.com")
    name = urllib.parse.quote(environment, safe="")
    request = urllib.request.Request(f"{base}/repos/{repository}/environments/{name}")
    request.add_header("Accept", "application/vnd.github+json")
    if token := os.environ.get("GITHUB_TOKEN"):
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        missing = error.code in (401, 403, 404)
        return "does not exist, or cannot be read" if missing else f"is unknown: HTTP {error.code}"
    except (OSError, ValueError) as error:
        return f"cannot be read: {error}"
    rules = found.get("protection_rules", []) if isinstance(found, dict) else []
    asks = any(rule.get("type") == "required_reviewers" and rule.get("reviewers") for rule in rules)
    return None if asks else "asks no reviewer (settings, environments, required reviewers)"
