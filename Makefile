# Every command sets up what it needs; nothing has to be installed first but Rust (1.95 or newer), a C compiler, and for the tests
# Python 3 and Node.js 20.
#
#   make demo     three agents, one turns slow, the others never notice    (make demo ARGS="--without-walls --seconds 60")
#   make test     every test: unit, property, whole-process, documentation, the official SDKs (Python, JavaScript, Rust)
#   make soak     the property tests with new inputs, many more of them (SOAK_CASES=20000)
#   make chaos    1000 delegations to five agents while the gateway is killed twenty times and an agent stands still; prints the tally
#   make check    what must hold before a commit: formatting, lints, tests, licences
#   make bench    what a call costs, beside nginx and SQLite: a table, and JSON in target/bench/ (BENCH.md)
#   make bench-demo   the demo's measurement with and without walls, as JSON in target/bench/
#   make docs     docs/config.md and docs/watertight.schema.json, from the table of keys
#   make clean    removes everything that was built

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test soak chaos check fmt lint deny bench bench-demo bench-record bench-tools docs sdks venv node rust tools clean

# Where cargo builds. What the SDK tests need and the measurements stay in this checkout.
TARGET := $(or $(CARGO_TARGET_DIR),target)
VENV := target/venv
NODE := tests/sdk/js/node_modules
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

test: tools sdks
	@if cargo nextest --version >/dev/null 2>&1; then \
	  cargo nextest run --locked --workspace --no-fail-fast; \
	else \
	  echo "cargo-nextest is not installed: the tests run with cargo test."; \
	  cargo test --locked --workspace --no-fail-fast --lib --bins --tests; \
	fi
	@cargo test --locked --doc -p watertight-policy -p watertight-a2a

# Property tests try the same inputs in every `make test`, so that what is red is red by the change; `make soak` tries others.
test: export PROPTEST_RNG_SEED ?= 20260401

SOAK_CASES ?= 20000

soak: tools
	@PROPTEST_CASES=$(SOAK_CASES) cargo test --locked -p watertight-policy -p watertight-a2a --no-fail-fast --lib

chaos: tools
	@cargo test --locked -q -p watertight --test it -- --ignored --exact --nocapture \
	  chaos::twenty_kills_lose_nothing_double_nothing_and_leave_nothing_behind

check: fmt lint test deny

fmt: tools
	@cargo fmt --all --check
	@cargo fmt --manifest-path tests/sdk/rust/Cargo.toml --check

lint: tools
	@cargo clippy --locked --workspace --all-targets -- -D warnings

deny: tools
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check bans licenses sources; \
	else echo "cargo-deny is not installed: licences and sources were not checked."; fi

# What a call costs. BENCH_PROFILE=demo builds faster; BENCH_ONLY=memory,nginx and BENCH_CONNS=16 measure less;
# BENCH_ARGS goes to the program (`--rounds 1 --seconds 1`).
BENCH_PROFILE ?= release
BENCH_ONLY ?=
BENCH_CONNS ?=
BENCH_ARGS ?=
BENCH := $(TARGET)/$(BENCH_PROFILE)/watertight-bench
NGINX := $(or $(wildcard /usr/sbin/nginx),$(CURDIR)/target/bench/nginx/usr/sbin/nginx)

bench: tools bench-tools
	@cargo build --locked --profile $(BENCH_PROFILE) -p watertight -p watertight-bench
	@mkdir -p target/bench
	@exec $(BENCH) run --gateway $(TARGET)/$(BENCH_PROFILE)/watertight --profile $(BENCH_PROFILE) \
	  $$([ ! -x $(NGINX) ] || echo --nginx $(NGINX)) \
	  $(if $(BENCH_ONLY),--only $(BENCH_ONLY)) $(if $(BENCH_CONNS),--conns $(BENCH_CONNS)) $(BENCH_ARGS)

# The table in BENCH.md, from the last run's JSON.
bench-record:
	@$(BENCH) record target/bench/bench.json BENCH.md

# nginx, to compare with: the one that is installed, or Debian's package unpacked below target/. Unpacked and not
# installed, because the package would start a server of its own on port 80.
bench-tools:
	@[ -x $(NGINX) ] || { \
	  command -v apt-get >/dev/null || { echo "nginx is not here, and neither is apt: it is left out." >&2; exit 0; }; \
	  mkdir -p target/bench/nginx && cd target/bench/nginx; \
	  echo "No nginx found: unpacking Debian's package below target/bench/."; \
	  apt-get download -qq nginx 2>/dev/null \
	    || { sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); $$sudo apt-get update -qq && apt-get download -qq nginx; }; \
	  dpkg -x nginx_*.deb . && rm nginx_*.deb; \
	  ./usr/sbin/nginx -v 2>/dev/null || { echo "nginx does not run here: install it (apt-get install nginx)." >&2; exit 1; }; }

# The same measurement twice, with and without walls. Each takes BENCH_SECONDS and a few more.
bench-demo: tools
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

# A test keeps them equal to the table.
docs: tools
	@UPDATE=1 cargo test --locked -q -p watertight-gateway --lib the_files_in_docs > /dev/null && git status --short docs

# What the SDK tests run with: each made on demand, and again when what it is made from changes.
sdks: venv node rust

venv: $(VENV)/.ready

$(VENV)/.ready: tests/sdk/python/requirements.txt tests/sdk/python/setup.sh
	@tests/sdk/python/setup.sh $(VENV)
	@touch $@

node: $(NODE)/.ready

$(NODE)/.ready: tests/sdk/js/package.json tests/sdk/js/package-lock.json tests/sdk/js/setup.sh
	@tests/sdk/js/setup.sh
	@touch $@

# An agent with a lock file and a target directory of its own, so that nothing of it gets into the product.
rust: tools
	@cargo build --quiet --locked --manifest-path tests/sdk/rust/Cargo.toml --target-dir target/sdk-rust

clean:
	@rm -rf target/venv target/sdk-rust target/bench $(NODE)
	@command -v cargo >/dev/null && cargo clean || rm -rf target
