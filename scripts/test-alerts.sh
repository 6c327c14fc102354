#!/bin/sh
# Tests the alert rules with promtool against series that fire and series that do
# not. Without promtool CI unpacks Debian's prometheus package, so that no daemon
# is installed; elsewhere the script says what to install.
set -eu
cd "$(dirname "$0")/../deploy/prometheus"
promtool=promtool
if ! command -v promtool >/dev/null; then
	if [ -z "${CI:-}" ]; then
		echo "promtool is missing: apt-get install --no-install-recommends prometheus" >&2
		exit 1
	fi
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' EXIT
	chmod 755 "$dir"
	[ "$(id -u)" != 0 ] || apt-get update -q || :
	(cd "$dir" && apt-get download -q prometheus && dpkg-deb -x prometheus_*.deb .) || {
		echo "SKIPPED: the alert rules are not tested, promtool cannot be had here" >&2
		exit 0
	}
	promtool=$dir/usr/bin/promtool
fi
"$promtool" check rules onefold.rules.yaml
"$promtool" test rules onefold.rules_test.yaml
