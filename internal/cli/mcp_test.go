//go:build unix

package cli

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ombud-run/ombud/internal/wire"
)

// TestMCPScripts plays testdata/mcp with the real daemon. Beside the usual commands
// there is
//
//	token FROM TO    writes the token of a client that was added with --json
func TestMCPScripts(t *testing.T) {
	t.Parallel()
	play(t, "mcp", true, map[string]func(*testscript.TestScript, bool, []string){
		"token": func(ts *testscript.TestScript, _ bool, args []string) {
			var added wire.MCPClientAddResult
			ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &added))
			ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(added.Token+"\n"), 0o600))
		},
	})
}

// A program whose parent was killed ends, though its standard input stays open.
func TestMCPServeEndsWithItsParent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("x."+strings.Repeat("0", 64)), 0o600); err != nil {
		t.Fatal(err)
	}
	in, toIn, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer toIn.Close()
	fromOut, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer fromOut.Close()
	sh := exec.Command("sh", "-c", `ombud mcp serve --token-file "$0" <&3 >&4 3<&- 4>&- & wait`, token)
	sh.Env = append(os.Environ(), "OMBUD_HOME="+dir)
	sh.ExtraFiles = []*os.File{in, out}
	if err := sh.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	_ = out.Close()
	hello := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}` + "\n"
	if _, err := toIn.WriteString(hello); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(fromOut)
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, `"id":1,"result"`) {
		t.Fatalf("%q, %v", line, err)
	}
	if err := sh.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = sh.Wait() // it was killed
	if rest, err := r.ReadString('\n'); rest != "" || err == nil {
		t.Errorf("it said %q, %v", rest, err)
	}
}
