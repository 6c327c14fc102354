#!/bin/sh
# Makes sure that the programs of a Postgres server are on this machine. Where
# they are missing it installs them when it is run as root in CI (CI=true) or
# with YES=1; else it prints the command that would, and stops.
set -eu
cd "$(dirname "$0")/.."

testpg() { go run ./internal/pg/cmd/testpg "$@"; }

if testpg -find >/dev/null 2>&1; then
	exit 0
fi
command=$(testpg -install)
if [ "${YES:-}" = 1 ] || { [ "${CI:-}" = true ] && [ "$(id -u)" = 0 ]; }; then
	echo "installing Postgres: $command"
	DEBIAN_FRONTEND=noninteractive sh -c "$command" </dev/null
	testpg -find >/dev/null
	exit 0
fi
testpg -find || true
echo "(or let this do it: make YES=1 ...)" >&2
exit 1
