#!/usr/bin/env bash
# Makes what the official JavaScript A2A SDK needs, in node_modules beside this file: setup.sh
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"

new_enough() { command -v npm >/dev/null && [ "$(node -p 'Number(process.versions.node.split(".")[0]) >= 20' 2>/dev/null)" = true ]; }
if ! new_enough && command -v apt-get >/dev/null; then
  echo "Node.js 20 or newer is missing: trying the Debian packages nodejs and npm."
  sudo=$([ "$(id -u)" = 0 ] || echo sudo)
  $sudo apt-get update -qq
  $sudo apt-get install -y -qq nodejs npm
fi
new_enough || { echo "Node.js 20 or newer, with npm, is missing: the SDK tests need it. See https://nodejs.org/en/download." >&2; exit 1; }

install() { timeout 300 npm ci --ignore-scripts --no-audit --no-fund --loglevel error; }
echo "Installing the JavaScript A2A SDK into $PWD/node_modules."
install || { echo "npm failed or took too long: trying once more."; install; }
