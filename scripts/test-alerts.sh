#!/bin/sh
# Tests the alert rules with promtool against series that fire and series that do
# not. In CI it installs Debian's prometheus package; elsewhere it says how.
set -eu
cd "$(dirname "$0")/../deploy/prometheus"
if ! command -v promtool >/dev/null; then
	if [ -z "${CI:-}" ]; then
		echo "promtool is missing: apt-get install --no-install-recommends prometheus" >&2
		exit 1
	fi
	sudo apt-get update -q && sudo apt-get install -qy --no-install-recommends prometheus
fi
promtool check rules onefold.rules.yaml
promtool test rules onefold.rules_test.yaml
