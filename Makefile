# Every command sets up what it needs; nothing has to be installed first but Rust (1.95 or newer), a C compiler and Python 3.
#
#   make demo     three agents, one turns slow, the others never notice    (make demo ARGS="--without-walls --seconds 60")
#   make test     every test: unit, property, whole-process, documentation, the Python SDK
#   make check    what must hold before a commit: formatting, lints, tests, licences
#   make bench    the demo's measurement with and without walls, as JSON in target/bench/
#   make clean    removes everything that was built

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test check fmt lint deny bench venv tools clean

# Where cargo builds. The Python environment and the measurements stay in this checkout.
TARGET := $(or $(CARGO_TARGET_DIR),target)
VENV := target/venv
DEMO := $(TARGET)/demo/watertight
BENCH_SECONDS ?= 60
ARGS ?=

export CARGO_TERM_COLOR ?= auto

help:
	@sed -n 's/^#   //p' Makefile

# A missing Rust is said, not guessed at. A missing C compiler (SQLite is built from source) is installed where apt can do it.
tools:
	@command -v cargo >/dev/null || { echo "Rust is missing: install 1.95 or newer from https://rustup.rs and run this again." >&2; exit 1; }
	@command -v cc >/dev/null || { command -v apt-get >/dev/null \
	  || { echo "A C compiler is missing (SQLite is built from source): install gcc or clang and run this again." >&2; exit 1; }; \
	  echo "No C compiler found: installing the Debian packages gcc and libc6-dev."; \
	  sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); $$sudo apt-get update -qq && $$sudo apt-get install -y -qq gcc libc6-dev; }

demo: tools
	@cargo build --locked --profile demo -p watertight
	@exec $(DEMO) demo $(ARGS)

test: tools venv
	@if cargo nextest --version >/dev/null 2>&1; then \
	  cargo nextest run --locked --workspace --no-fail-fast; \
	else \
	  echo "cargo-nextest is not installed: the tests run with cargo test."; \
	  cargo test --locked --workspace --no-fail-fast --lib --bins --tests; \
	fi
	@cargo test --locked --doc -p watertight-policy -p watertight-a2a

check: fmt lint test deny

fmt: tools
	@cargo fmt --all --check

lint: tools
	@cargo clippy --locked --workspace --all-targets -- -D warnings

deny: tools
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check bans licenses sources; \
	else echo "cargo-deny is not installed: licences and sources were not checked."; fi

# The same measurement twice, with and without walls. Each takes BENCH_SECONDS and a few more.
bench: tools
	@cargo build --locked --profile demo -p watertight
	@mkdir -p target/bench
	@for walls in with without; do \
	  flag=$$([ $$walls = with ] || echo --without-walls); \
	  echo "measuring $$walls walls for $(BENCH_SECONDS) s"; \
	  code=0; $(DEMO) demo --json --seconds $(BENCH_SECONDS) $$flag > target/bench/$$walls-walls.json || code=$$?; \
	  [ $$code -le 1 ] || exit $$code; \
	  [ $$code = 0 ] || echo "  not every verdict is PASS"; \
	  echo "  target/bench/$$walls-walls.json"; \
	done

# The Python environment of the SDK tests, made on demand and again when its requirements change.
venv: $(VENV)/.ready

$(VENV)/.ready: tests/sdk/requirements.txt tests/sdk/setup.sh
	@tests/sdk/setup.sh $(VENV)
	@touch $@

clean:
	@rm -rf target/venv target/bench
	@command -v cargo >/dev/null && cargo clean || rm -rf target
