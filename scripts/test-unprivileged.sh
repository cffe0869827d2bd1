#!/bin/sh
# Runs the tests of what differs between root and everybody else (walls, jobs, keys,
# file modes) as a user without rights. Only root can do that; anybody else has run
# them so by make test already.
#   sh scripts/test-unprivileged.sh PACKAGE...
set -eu

if [ "$(uname -s)" != Linux ]; then exit 0; fi
if [ "$(id -u)" != 0 ]; then
	echo "test-unprivileged: you are not root, so make test has run these tests as it should"
	exit 0
fi
command -v setpriv >/dev/null || { echo "test-unprivileged: setpriv (util-linux) is missing" >&2; exit 1; }

# The user may not see this checkout, so it gets a copy of its own.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir"
mkdir "$dir/home" "$dir/src"
git ls-files -z -- go.mod internal | tar -c --null -T - | tar -x -C "$dir/src"
chown -R 65534:65534 "$dir/home" "$dir/src"

failed=
for package in "$@"; do
	binary="$dir/$(echo "$package" | tr / _).test"
	"${GO:-go}" test -buildvcs=false -c -o "$binary" "./$package"
	chmod 755 "$binary"
	start=$(date +%s)
	if (cd "$dir/src/$package" && setpriv --reuid=65534 --regid=65534 --clear-groups \
		env -i PATH="$PATH" HOME="$dir/home" CI="${CI:-}" "$binary" -test.short -test.timeout 10m >"$dir/log" 2>&1); then
		echo "ok  	$package as uid 65534	$(($(date +%s) - start))s"
	else
		cat "$dir/log"
		echo "FAIL	$package as uid 65534"
		failed=1
	fi
done
[ -z "$failed" ]
