package wasmloop

import (
	"bytes"
	"context"
	"crypto/rand"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"

	"github.com/ombud-run/ombud/internal/fault"
)

// instance is what the host keeps of one instance of the module.
type instance struct {
	r        *Runner
	host     Host
	trigger  []byte
	calls    int // all of them
	numbered int // those that are recorded
	printed  int64
	stdout   printer
	stderr   printer

	// kept is an answer that was longer than the guest's buffer. The guest calls again
	// with a longer one, and the call is not made again.
	kept *keptAnswer
	left []byte // the same for the module "ombud"
}

type keptAnswer struct {
	name    string
	request []byte
	answer  []byte
}

func (r *Runner) newInstance(ctx context.Context, trigger []byte) *instance {
	i := &instance{r: r, host: r.opt.host(ctx), trigger: trigger}
	i.stdout, i.stderr = printer{i: i, name: "stdout"}, printer{i: i, name: "stderr"}
	return i
}

// walltime is the module's wall clock.
func (i *instance) walltime() (sec int64, nsec int32) {
	now := i.host.Clock()
	return now.Unix(), int32(now.Nanosecond()) //nolint:gosec // below a second
}

type instanceKey struct{}

// open makes the instance, begins it, and hands it to use.
func (i *instance) open(ctx context.Context, use func(context.Context, api.Module) error) (err error) {
	ctx = context.WithValue(ctx, instanceKey{}, i)
	defer i.stderr.flush()
	defer i.stdout.flush()
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions().
		WithWalltime(i.walltime, sys.ClockResolution(time.Microsecond)).WithSysNanotime().WithRandSource(rand.Reader).
		WithNanosleep(func(ns int64) { sleep(ctx, ns) }).
		WithStdout(&i.stdout).WithStderr(&i.stderr)
	mem := &memory{of: &image{}}
	if i.r.image != nil {
		mem = i.r.image.memory()
	}
	making := experimental.WithMemoryAllocator(ctx, mem) // and not ctx: it goes on to the instances of other loops
	mod, err := i.r.engine.runtime.InstantiateModule(making, i.r.engine.module, config)
	if err != nil {
		return err
	}
	defer func() {
		if closed := mod.Close(context.WithoutCancel(ctx)); err == nil {
			err = closed
		}
		if err == nil && i.r.image != nil { // what is left of one that failed is not used again
			mem.giveBack()
		}
	}()
	if begin := mod.ExportedFunction(initExport); begin != nil {
		if _, err := begin.Call(ctx); err != nil {
			return err
		}
	}
	return use(ctx, mod)
}

// sleep is how a module waits. The engine would have it look at the clock again and again.
func sleep(ctx context.Context, ns int64) {
	t := time.NewTimer(time.Duration(ns))
	defer t.Stop()
	select {
	case <-ctx.Done(): // and the module ends as soon as it goes on
	case <-t.C:
	}
}

// printer takes what a module prints, as one line of the log a line: a module may write each
// word by itself. What has no end of line ends with the module.
type printer struct {
	i    *instance
	name string
	line []byte // so far, up to one byte more than is said
}

const maxLine = 2000

func (p *printer) Write(b []byte) (int, error) {
	if !p.i.mayPrint(len(b)) {
		return len(b), nil
	}
	for rest := b; len(rest) > 0; {
		line, after, ends := bytes.Cut(rest, []byte{'\n'})
		p.line = append(p.line, line[:min(len(line), maxLine+1-len(p.line))]...)
		if ends {
			p.flush()
		}
		rest = after
	}
	return len(b), nil
}

// flush logs the line so far. An empty one says nothing.
func (p *printer) flush() {
	if len(p.line) > 0 {
		p.i.say(p.name, p.line)
	}
	p.line = p.line[:0]
}

// print logs what a module says, cut to a line, until it has said as much as it may.
func (i *instance) print(by string, b []byte) {
	if i.mayPrint(len(b)) {
		i.say(by, b)
	}
}

func (i *instance) say(by string, b []byte) {
	text := strings.ToValidUTF8(fault.Cut(string(b), maxLine), "\uFFFD")
	i.host.Log.Info("a loop says", "loop", i.r.manifest.Name, "by", by, "text", strings.TrimRight(text, "\n"))
}

// mayPrint counts what a module says, and says so when it is too much.
func (i *instance) mayPrint(n int) bool {
	most := i.r.opt.Limits.Output
	if i.printed > most {
		return false
	}
	if i.printed += int64(n); i.printed > most {
		i.host.Log.Warn("the loop logs too much; the rest of this run is dropped", "loop", i.r.manifest.Name, "bytes", most)
		return false
	}
	return true
}
