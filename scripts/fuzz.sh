#!/bin/sh
# Runs every fuzz test of the module for FUZZTIME each (default 60s), found by
# their names, so that a new one needs no entry anywhere. The first that finds
# something stops the run; its input then lies in that package's testdata/fuzz.
# Minimising is bounded to a few tries: by default one interesting input may take
# a minute of it, and then the time goes there instead of into new inputs.
set -eu
cd "$(dirname "$0")/.."

grep -rE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*\(' . |
	sed -E 's#^(.*)/[^/]+_test\.go:func (Fuzz[A-Za-z0-9_]*)\(.*#\1 \2#' | sort -u |
	{
		n=0
		while read -r dir name; do
			echo "== $dir $name"
			go test "$dir" -run '^$' -fuzz "^$name\$" -fuzztime "${FUZZTIME:-60s}" -fuzzminimizetime 10x </dev/null
			n=$((n + 1))
		done
		[ "$n" -gt 0 ] || { echo "no fuzz test found" >&2; exit 1; }
	}
