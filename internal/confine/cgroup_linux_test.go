package confine

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

const cgroupPatience = 30 * time.Second

// cgroups opens a subtree of this test's own, or skips it where the user can make none.
func cgroups(t *testing.T, name string) *Cgroups {
	t.Helper()
	c, err := OpenCgroups(CgroupOptions{Name: name})
	if fault.Is(err, fault.Unavailable) {
		t.Skipf("no cgroups for this user: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func newGroup(t *testing.T, c *Cgroups, job string) *group {
	t.Helper()
	g, err := c.New(job)
	if err != nil {
		t.Fatal(err)
	}
	return g.(*group)
}

// escaper leaves processes that took sessions of their own, ignore SIGTERM and have
// lost their parent, and says "ready" when they are there.
const escaper = `
for i in 1 2 3; do
  setsid sh -c 'trap "" TERM HUP INT; sleep 300 & setsid sleep 300 & while :; do sleep 1; done' </dev/null >/dev/null 2>&1 &
done
sleep 0.2; echo ready; exec sleep 300`

// emptied reports whether no process is left in a group, in whichever tree.
func emptied(g *group) (bool, error) {
	for _, dir := range g.dirs() {
		if empty, err := isEmpty(dir); err != nil || !empty {
			return false, err
		}
	}
	return true, nil
}

// runIn starts a shell script in a group and returns when it has written "ready".
func runIn(t *testing.T, g *group, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "read go; "+script)
	if g.dir != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(g.dir.Fd())}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "go\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("it says %q: %v", line, err)
	}
	return cmd
}

// dead waits until a process is gone or a zombie that its parent has not buried.
func dead(t *testing.T, pids []int) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	over := time.After(cgroupPatience)
	for _, pid := range pids {
		for {
			if st, err := statOf(pid); err != nil || st.state == 'Z' || st.state == 'X' {
				break
			}
			select {
			case <-tick.C:
			case <-over:
				t.Fatalf("process %d lives", pid)
			}
		}
	}
}

func TestNothingOfACgroupIsLeft(t *testing.T) {
	t.Parallel()
	c := cgroups(t, CgroupName(uint64(os.Getpid()), 1<<39))
	for how, end := range map[string]func(g *group) error{
		"kill":       (*group).Kill,
		"close":      (*group).Close,
		"one_by_one": func(g *group) error { return killOneByOne(g.dirs()[0]) },
	} {
		g := newGroup(t, c, how)
		cmd := runIn(t, g, escaper)
		pids, err := pidsBelow(g.dirs()[0])
		if err != nil || len(pids) < 7 {
			t.Fatalf("%s: processes %v, %v", how, pids, err)
		}
		if empty, err := emptied(g); empty || err != nil {
			t.Errorf("%s: empty %v, %v", how, empty, err)
		}
		if in, err := InJobGroup(pids[len(pids)-1]); !in || err != nil {
			t.Errorf("%s: in a job's group: %v, %v", how, in, err)
		}
		if err := end(g); err != nil {
			t.Errorf("%s: %v", how, err)
		}
		dead(t, pids)
		_ = Wait(cmd) // it was killed
		if how != "close" {
			if empty, err := emptied(g); !empty || err != nil {
				t.Errorf("%s: empty %v, %v", how, empty, err)
			}
			if err := g.Close(); err != nil {
				t.Errorf("%s: close: %v", how, err)
			}
		}
		for _, dir := range g.dirs() {
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("%s is there: %v", dir, err)
			}
		}
	}
	if in, err := InJobGroup(os.Getpid()); in || err != nil {
		t.Errorf("we are in a job's group: %v, %v", in, err)
	}
	if _, err := InJobGroup(1 << 22); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a process that is not there: %v", err)
	}
	for _, bad := range []string{"", ".", "..", "a/b", "a b", strings.Repeat("x", 200)} {
		if _, err := c.New(bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("job %q: %v", bad, err)
		}
	}
}

// A daemon that is killed leaves its subtree; the next one of this name ends it,
// and leaves another's alone.
func TestALaterStartSweepsWhatAKilledDaemonLeft(t *testing.T) {
	t.Parallel()
	name, other := CgroupName(uint64(os.Getpid()), 1<<40), CgroupName(uint64(os.Getpid()), 1<<41)
	first, another := cgroups(t, name), cgroups(t, other)
	left, kept := newGroup(t, first, "left"), newGroup(t, another, "kept")
	for _, g := range []*group{left, kept} {
		cmd := runIn(t, g, escaper)
		defer func() { _ = cmd.Process.Kill(); _ = Wait(cmd) }()
	}
	pids, err := pidsBelow(left.dirs()[0])
	if err != nil {
		t.Fatal(err)
	}
	second := cgroups(t, name)
	dead(t, pids)
	if empty, err := emptied(kept); empty || err != nil {
		t.Errorf("another daemon's job: gone %v, %v", empty, err)
	}
	if err := newGroup(t, second, "left").Close(); err != nil { // the name is free again
		t.Error(err)
	}
}

func TestAForkBombStaysWithinItsLimit(t *testing.T) {
	t.Parallel()
	c := cgroups(t, CgroupName(uint64(os.Getpid()), 1<<42))
	g := newGroup(t, c, "bomb")
	if err := g.Limit(10); err != nil {
		if c.Bounds() {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	cmd := runIn(t, g, `(for i in $(seq 200); do sleep 300 & done) >/dev/null 2>&1 </dev/null; echo ready; exec sleep 300`)
	pids, err := pidsBelow(g.dirs()[0])
	if err != nil || len(pids) == 0 || len(pids) > 10+ownThreads {
		t.Errorf("%d processes: %v", len(pids), err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	dead(t, pids)
	_ = Wait(cmd) // it was killed
}

// A place that only looks like a tree of cgroups, one that may not be written, and
// none at all: there is an error that says which, and nothing is made.
func TestWhereNoCgroupCanBeMadeItIsSaid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	name := CgroupName(1, 2)
	own := file("own", "0::/\n4:pids:/\n")
	fake := "29 22 0:25 / " + escape(dir) + " rw - cgroup2 cgroup2 rw\n"
	for want, o := range map[string]CgroupOptions{
		"is no cgroup":           {Mounts: file("fake", fake), Self: own},
		"none are mounted":       {Mounts: file("none", "1 1 0:1 / / rw - ext4 /dev/x rw\n"), Self: own},
		"read-only":              {Mounts: file("ro", readOnlyMounts), Self: file("docker", "0::/docker/abc\n")},
		"is not mounted here":    {Mounts: file("other", fake), Self: file("outside", "0::/../x\n")},
		"no such file":           {Mounts: filepath.Join(dir, "missing"), Self: own},
		"of a job itself":        {Mounts: file("pure", pureMounts), Self: file("job", "0::/a/"+name+"/job_1\n")},
		"a job's, one above":     {Mounts: file("pure2", pureMounts), Self: file("job2", "0::/"+name+"\n")},
		"no such file or direct": {Mounts: file("gone", "29 22 0:25 / /no/such/place rw - cgroup2 cgroup2 rw\n"), Self: own},
	} {
		o.Name = name
		c, err := OpenCgroups(o)
		if !fault.Is(err, fault.Unavailable) || want != "a job's, one above" && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", want, c, err)
		}
	}
	if _, err := OpenCgroups(CgroupOptions{Name: "../x"}); !fault.Is(err, fault.Internal) {
		t.Errorf("a name of another kind: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, jobsPrefix+"*"))
	if err != nil || len(left) != 0 {
		t.Errorf("it made %v: %v", left, err)
	}
}

func TestManyGroupsAtOnce(t *testing.T) {
	t.Parallel()
	c := cgroups(t, CgroupName(uint64(os.Getpid()), 1<<43))
	done := make(chan error, 16)
	for i := range cap(done) {
		go func() {
			for n := range 10 {
				g, err := c.New("j" + strconv.Itoa(i) + "_" + strconv.Itoa(n))
				if err == nil {
					err = g.Close()
				}
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for _, dir := range []string{c.v2, c.pids} {
		if _, err := os.Stat(dir); dir != "" && !os.IsNotExist(err) {
			t.Errorf("without jobs %s is there: %v", dir, err)
		}
	}
}
