package cli

import (
	"context"
	"errors"
	"fmt"
	"go/version"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/scaffold"
	"github.com/ombud-run/ombud/wasmloop"
)

// builtLoop is what a build made.
type builtLoop struct {
	Name   string `json:"name"`
	Module string `json:"module"`
	Bytes  int    `json:"bytes"`
}

// maxModule is the most a module can have.
const maxModule = 64 << 20

func (a *app) loopBuildCmd() *cobra.Command {
	return a.command(spec{
		use: "build [DIR]", short: "check loop.yaml and compile the loop",
		long: `Writes NAME.wasm beside loop.yaml and sees that it can be run: what it imports and exports.
A loop in Go needs Go ` + scaffold.MinGo + ` or newer and nothing else: with the vendor directory that
ombud loop new made, nothing is fetched. One in AssemblyScript needs node, and npm ci
before the first build. Exits 78 if loop.yaml is wrong.`,
		example: "ombud loop build\nombud loop build ./hello", args: cobra.MaximumNArgs(1),
	}, func(ctx context.Context, args []string) error {
		dir := here(args)
		m, err := readLoopYAML(filepath.Join(dir, "loop.yaml"))
		if err != nil {
			return err
		}
		out := filepath.Join(dir, m.Name+".wasm")
		if err := a.compile(ctx, dir, m.Name+".wasm"); err != nil {
			return err
		}
		module, err := readPart(out, maxModule)
		if err != nil {
			return err
		}
		if err := runnable(ctx, m, module); err != nil {
			return err
		}
		return a.show("loop-build/1", builtLoop{m.Name, out, len(module)}, func(p *page) {
			p.line("built %s, %s", out, size(int64(len(module))))
			p.line("%s", p.faint("ombud loop sign"+strings.TrimSuffix(" "+strings.Join(args, " "), " ")))
		})
	})
}

// here is the directory an argument names, or this one.
func here(args []string) string {
	if len(args) > 0 {
		return args[0]
	}
	return "."
}

// runnable says whether a module can be run as a loop.
func runnable(ctx context.Context, m wasmloop.Manifest, module []byte) error {
	nothing := struct{ wasmloop.DurableKit }{} // nothing is run
	r, err := wasmloop.NewRunner(ctx, &wasmloop.Artifact{Manifest: m, Module: module}, wasmloop.Options{Kit: nothing})
	if err != nil {
		return fault.New(fault.Invalid, "the module cannot be run: %w", err)
	}
	if err := r.Close(ctx); err != nil {
		return fault.New(fault.Internal, "close the sandbox: %w", err)
	}
	return nil
}

// compile makes the module of a project, in the language it is written in.
func (a *app) compile(ctx context.Context, dir, out string) error {
	is := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	switch {
	case is("asconfig.json"):
		return a.compileAssemblyScript(ctx, dir, out)
	case is("go.mod"):
		return a.compileGo(ctx, dir, out, is(filepath.Join("vendor", "modules.txt")))
	}
	return fault.New(fault.NotFound, "%s has neither go.mod nor asconfig.json, so it cannot be told how it is compiled", dir).
		WithHint("compile it by its own means, and: ombud loop sign --module FILE.wasm")
}

const needsGo = "install Go from https://go.dev/dl or by your system's packages, and see that go is in PATH"

func (a *app) compileGo(ctx context.Context, dir, out string, vendored bool) error {
	program, err := exec.LookPath("go")
	if err != nil {
		return fault.New(fault.Unavailable, "a loop in Go is compiled by Go, and there is no program go in PATH").WithHint(needsGo)
	}
	env := append(config.OSEnvForDaemon(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOWORK=off", "GOTOOLCHAIN=local")
	if vendored { // everything is here
		env = append(env, "GOFLAGS=-mod=vendor", "GOPROXY=off")
	}
	ask := exec.CommandContext(ctx, program, "version") //nolint:gosec // found in PATH
	ask.Env = env
	said, err := ask.Output()
	if err != nil {
		return fault.New(fault.Unavailable, "%s version: %w", program, err).WithHint(needsGo)
	}
	got := goVersion(string(said))
	if older(got, "go"+scaffold.MinGo) {
		return fault.New(fault.Unavailable, "%s is Go %s, and a loop needs Go %s or newer", program, strings.TrimPrefix(got, "go"), scaffold.MinGo).WithHint(needsGo)
	}
	a.note("compiling %s by Go %s; the first time takes longer", out, strings.TrimPrefix(got, "go"))
	build := exec.CommandContext(ctx, program, "build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out, ".") //nolint:gosec // found in PATH
	build.Dir, build.Env = dir, env
	return a.compiled(build)
}

// goVersion is the version in what go version says, go1.26.1, "" if it says none.
func goVersion(said string) string {
	fields := strings.Fields(said)
	if len(fields) < 3 || !version.IsValid(fields[2]) {
		return ""
	}
	return fields[2]
}

// older reports whether a version of Go is older than another. One that cannot be read, of
// Go's own development, is not.
func older(got, than string) bool { return version.IsValid(got) && version.Compare(got, than) < 0 }

func (a *app) compileAssemblyScript(ctx context.Context, dir, out string) error {
	node, err := exec.LookPath("node")
	if err != nil {
		return fault.New(fault.Unavailable, "a loop in AssemblyScript is compiled by node, and there is no program node in PATH").
			WithHint("install Node.js 20 or newer, by your system's packages or from https://nodejs.org")
	}
	compiler := filepath.Join("node_modules", "assemblyscript", "bin", "asc.js")
	if _, err := os.Stat(filepath.Join(dir, compiler)); err != nil {
		return fault.New(fault.Unavailable, "the compiler is not there: %s", filepath.Join(dir, compiler)).
			WithHint("npm ci in the project fetches it, once")
	}
	build := exec.CommandContext(ctx, node, compiler, "--config", "asconfig.json", "--outFile", out) //nolint:gosec // found in PATH
	build.Dir, build.Env = dir, config.OSEnvForDaemon()
	return a.compiled(build)
}

// compiled runs a compiler and tells what it says.
func (a *app) compiled(cmd *exec.Cmd) error {
	said, err := cmd.CombinedOutput()
	if text := strings.TrimSpace(string(said)); text != "" {
		fmt.Fprintln(a.stderr, guard.CleanText(text))
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return fault.New(fault.Invalid, "the loop does not compile")
	case err != nil:
		return fault.New(fault.Unavailable, "run the compiler: %w", err)
	}
	return nil
}
