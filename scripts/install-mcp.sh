#!/bin/sh
# Installs the programs that judge how ombud speaks the Model Context Protocol, as
# scripts/mcp/package-lock.json pins them: the conformance suite, the inspector, three
# reference servers, and the Node the first two need. They go into a directory of the
# cache that is named by what is pinned, all at once or not at all, so a second call has
# nothing to do. npm takes them from the registry this machine is configured for.
# Prints the path of node_modules.
set -eu
cd "$(dirname "$0")/mcp"
pinned=$(cat package.json package-lock.json | sha256sum | cut -c1-16)
dir="${XDG_CACHE_HOME:-$HOME/.cache}/ombud-mcp/$pinned"
if [ ! -d "$dir/node_modules" ]; then
	command -v npm >/dev/null || { echo "install-mcp: npm is missing (scripts/setup-tests.sh installs it)" >&2; exit 1; }
	mkdir -p "$(dirname "$dir")"
	new=$(mktemp -d "$dir.XXXXXX")
	trap 'rm -rf "$new"' EXIT
	cp package.json package-lock.json "$new"
	# Not npm ci, which wants the lock file to name what is optional on other systems and
	# not to be had from every registry. npm itself may run on an older Node than what it
	# installs asks for.
	if ! (cd "$new" && npm install --no-audit --no-fund --ignore-scripts --loglevel=error </dev/null >"$new/log" 2>&1); then
		cat "$new/log" >&2
		echo "install-mcp: npm could not install what scripts/mcp pins" >&2
		exit 1
	fi
	# Another call may have been quicker: its directory is as good.
	mv -T "$new" "$dir" 2>/dev/null || [ -d "$dir/node_modules" ]
fi
echo "$dir/node_modules"
