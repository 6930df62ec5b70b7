#!/usr/bin/env bash
# Makes the Python environment in which the official SDKs of A2A and MCP run: setup.sh DIRECTORY
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=$1

command -v python3 >/dev/null || { echo "Python 3.10 or newer is missing: the SDK tests need it." >&2; exit 1; }
if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
  command -v apt-get >/dev/null || { echo "Python's venv module is missing." >&2; exit 1; }
  echo "Python's venv module is missing: installing the Debian package python3-venv."
  sudo=$([ "$(id -u)" = 0 ] || echo sudo)
  $sudo apt-get update -qq
  $sudo apt-get install -y -qq python3-venv
fi

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"

install() { timeout 300 "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$here/requirements.txt"; }
echo "Installing the Python SDKs of A2A and MCP into $venv."
install || { echo "pip failed or took too long: trying once more."; install; }
