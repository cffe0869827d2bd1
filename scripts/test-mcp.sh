#!/bin/sh
# Has others judge how ombud speaks the Model Context Protocol: the conformance suite of
# the protocol judges ombud's listener and handler in both revisions, the inspector lists
# and calls the tools of `ombud mcp serve` and of /mcp, and ombud's own client talks to
# the reference servers. Needs npm; nothing is skipped.
set -eu
cd "$(dirname "$0")/.."
GO=${GO:-go}
modules=$(sh scripts/install-mcp.sh)
node="$modules/.bin/node"
work=$(mktemp -d)
served=
end() {
	[ -z "$served" ] || { kill "$served" 2>/dev/null && wait "$served"; } || :
	[ ! -x "$work/ombud" ] || OMBUD_HOME="$work/home" "$work/ombud" stop >/dev/null 2>&1 || :
	rm -rf "$work"
}
trap end EXIT

# The fixtures are those of the official module, which is no package to import: its file is
# laid beside ours for this build.
place=$PWD/internal/mcp/server/testdata/everything
sdk=$($GO list -m -f '{{.Dir}}' github.com/modelcontextprotocol/go-sdk)
sed 's/^func main() {/func theirMain() {/' "$sdk/conformance/everything-server/main.go" >"$work/theirs.go"
printf '{"Replace":{"%s/theirs.go":"%s/theirs.go"}}' "$place" "$work" >"$work/overlay.json"
$GO build -buildvcs=false -overlay "$work/overlay.json" -o "$work/everything" ./internal/mcp/server/testdata/everything
$GO build -buildvcs=false -o "$work/ombud" ./cmd/ombud

mkfifo "$work/address"
"$work/everything" >"$work/address" &
served=$!
read -r url <"$work/address"
for revision in 2025-11-25 2026-07-28; do
	echo "test-mcp: conformance $revision"
	if ! (cd "$work" && PATH="$modules/.bin:$PATH" "$node" "$modules/.bin/conformance" server --url "$url" \
		--requirements "$revision" --expected-failures "$OLDPWD/scripts/mcp/expected-failures.yml" </dev/null >"$work/log" 2>&1); then
		cat "$work/log"
		echo "test-mcp: the server does not conform to $revision" >&2
		exit 1
	fi
	grep -E '^(Total|Not scored)' "$work/log"
	grep -q '^✓ server-session-lifecycle\|^✓ server-stateless' "$work/log" || { cat "$work/log"; echo "test-mcp: nothing was judged" >&2; exit 1; }
done

echo "test-mcp: inspector"
export OMBUD_HOME="$work/home" OMBUD_MODELS_MAIN=builtin OMBUD_LISTEN_ADDRESS=127.0.0.1:0
"$work/ombud" mcp client add inspector --json >"$work/added"
"$work/ombud" caps grant mcp:inspector time.read >/dev/null
token=$(sed -n 's/.*"token":"\([^"]*\)".*/\1/p' "$work/added")
url=$(sed -n 's/.*"url":"\([^"]*\)".*/\1/p' "$work/added")
inspect() {
	what=$1
	shift
	PATH="$modules/.bin:$PATH" "$node" "$modules/.bin/mcp-inspector" --cli "$@" </dev/null >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
	grep -q "$what" "$work/log" || { cat "$work/log"; echo "test-mcp: the inspector was not told $what" >&2; exit 1; }
}
inspect '"name": "time_now"' -e OMBUD_HOME="$OMBUD_HOME" "$work/ombud" mcp serve --client inspector --method tools/list
inspect '"status": "ok"' -e OMBUD_HOME="$OMBUD_HOME" "$work/ombud" mcp serve --client inspector --method tools/call --tool-name time_now
inspect '"name": "time_now"' "$url" --transport http --header "Authorization: Bearer $token" --method tools/list
inspect '"status": "ok"' "$url" --transport http --header "Authorization: Bearer $token" --method tools/call --tool-name time_now
unset OMBUD_HOME OMBUD_MODELS_MAIN OMBUD_LISTEN_ADDRESS

echo "test-mcp: reference servers, and the suite as a server"
OMBUD_TEST_MCP=$modules $GO test -buildvcs=false -count 1 -timeout 4m ./internal/mcp/client
echo "test-mcp: passed"
