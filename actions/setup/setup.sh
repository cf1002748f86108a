#!/usr/bin/env bash
# Puts the kernel-ci of this very commit on PATH.
#
#   setup.sh find      tell (output `install`) whether it must be installed
#   setup.sh install   install it, and what IN_PACKAGES names, into an environment of its own
#
# A runner that sets KERNEL_CI_PREINSTALLED=1 brings kernel-ci itself; it must be this version.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

find_installed() {
  if [[ -z "${KERNEL_CI_PREINSTALLED:-}" ]]; then
    echo "install=true" >>"$GITHUB_OUTPUT"
    return
  fi
  local wanted found
  wanted=$(sed -n 's/^version = "\(.*\)"$/kernel-ci \1/p' "$root/pyproject.toml")
  found=$(kernel-ci --version) || found="nothing"
  if [[ "$found" != "$wanted" ]]; then
    echo "::error title=kernel-ci: preinstalled::this runner has $found, the workflow is of $wanted;" \
      "install that one there, or unset KERNEL_CI_PREINSTALLED"
    exit 75
  fi
  echo "install=false" >>"$GITHUB_OUTPUT"
}

install() {
  local environment="$RUNNER_TEMP/kernel-ci/venv"
  python -m venv "$environment"
  local pip=("$environment/bin/python" -m pip install --quiet --retries 5
    --disable-pip-version-check --constraint "$root/constraints.txt")
  "${pip[@]}" "$root"
  # Requirements, separated by white space.
  local packages
  read -r -d '' -a packages <<<"${IN_PACKAGES:-}" || true
  if ((${#packages[@]})); then
    "${pip[@]}" -- "${packages[@]}"
  fi
  echo "$environment/bin" >>"$GITHUB_PATH"
}

case "${1:-}" in
  find) find_installed ;;
  install) install ;;
  *)
    echo "usage: setup.sh find|install" >&2
    exit 2
    ;;
esac
