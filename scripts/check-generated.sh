#!/bin/sh
# Generates what is generated and fails when that changed a file. It compares
# with the files as they are and not with the last commit, so that it can be run
# in the middle of work; the new files stay.
set -eu
cd "$(dirname "$0")/.."

# Everything git knows or would add, but nothing that is ignored.
sums() { git ls-files -z --cached --others --exclude-standard | sort -z | xargs -0 cksum 2>/dev/null || true; }

before=$(sums)
go generate ./...
after=$(sums)
if [ "$before" != "$after" ]; then
	echo "generated files were not current; they are now, commit them:" >&2
	git status --short >&2
	exit 1
fi
