#!/bin/sh
# Sees to it that there are prometheus and promtool: those on the path, or those
# of Debian's package, unpacked under bin/prometheus so that no daemon is
# installed. Prints the folder they are in, nothing if that is on the path.
set -eu
cd "$(dirname "$0")/.."
if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
	exit 0
fi
dir=$PWD/bin/prometheus
if [ ! -x "$dir/usr/bin/promtool" ]; then
	rm -rf "$dir"
	mkdir -p "$dir"
	{
		[ "$(id -u)" != 0 ] || apt-get update -q || :
		(cd "$dir" && apt-get download -q prometheus && dpkg-deb -x prometheus_*.deb . && rm -f prometheus_*.deb)
	} >&2 || {
		rm -rf "$dir"
		echo "prometheus is missing and cannot be had here: apt-get install --no-install-recommends prometheus" >&2
		exit 1
	}
fi
echo "$dir/usr/bin"
