#!/bin/sh
# Puts on this machine what the tests need and Go does not bring:
#   PostgreSQL's server programs (tests start clusters of their own), strace, and
#   dbus-daemon (the keyring is tested on a bus of the test's own);
#   with the argument "race" also a C compiler, for the race detector;
#   node, npm and the compiler of AssemblyScript, in which a loop can be written too.
# As root on a Debian system it installs what is missing through apt. Elsewhere it
# says what is missing and goes on: those tests are then skipped, and fail if CI=true.
set -eu

have_postgres() {
	for dir in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin; do
		if [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ]; then return 0; fi
	done
	command -v initdb >/dev/null && command -v postgres >/dev/null
}

missing=
have_postgres || missing="$missing postgresql"
if [ "$(uname -s)" = Linux ]; then
	command -v strace >/dev/null || missing="$missing strace"
	command -v dbus-daemon >/dev/null || missing="$missing dbus-daemon"
fi
# The examples in Python are run; only the standard library is needed.
command -v python3 >/dev/null || missing="$missing python3"
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then missing="$missing nodejs npm"; fi
if [ "${1:-}" = race ] && ! command -v "${CC:-cc}" >/dev/null && ! command -v gcc >/dev/null; then
	missing="$missing gcc libc6-dev"
fi

# The compiler is fetched by npm as it is pinned, once.
have_asc() { [ sdk/assemblyscript/node_modules/.package-lock.json -nt sdk/assemblyscript/package-lock.json ]; }
fetch_asc() {
	if have_asc || ! command -v npm >/dev/null; then return 0; fi
	log=$(mktemp)
	if ! (cd sdk/assemblyscript && npm ci --no-audit --no-fund --ignore-scripts </dev/null >"$log" 2>&1); then
		cat "$log" >&2
		echo "setup-tests: MISSING: the compiler of AssemblyScript, which npm could not fetch" >&2
		[ "${CI:-}" != true ] || exit 1
		echo "setup-tests: the tests that need it will be skipped" >&2
	fi
	rm -f "$log"
}
if [ -z "$missing" ]; then
	fetch_asc
	exit 0
fi

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "setup-tests: MISSING:$missing (as root on Debian this script installs them)" >&2
	[ "${CI:-}" != true ] || exit 1
	echo "setup-tests: the tests that need them will be skipped" >&2
	fetch_asc
	exit 0
fi

# Debian makes and starts a cluster on port 5432 with the package. We want the
# programs only; a machine that has the package already is left as it is.
keep=/etc/postgresql-common/createcluster.d/ombud-tests.conf
case "$missing" in *postgresql*)
	mkdir -p "${keep%/*}"
	echo 'create_main_cluster = false' >"$keep"
	trap 'rm -f "$keep"' EXIT
	;;
esac

echo "setup-tests: installing$missing"
log=$(mktemp)
install() {
	# shellcheck disable=SC2086 # a list of packages
	DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing </dev/null >"$log" 2>&1
}
if ! { apt-get update -q </dev/null >"$log" 2>&1 && install; }; then
	cat "$log" >&2
	echo "setup-tests: could not install$missing" >&2
	exit 1
fi
rm -f "$log"
fetch_asc
