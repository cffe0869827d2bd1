package confine

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ombud-run/ombud/internal/fault"
)

const (
	// emptyWithin is how long killed processes get to be gone. One that waits for a
	// disk dies when the disk answers.
	emptyWithin = 5 * time.Second
	lookAgain   = 2 * time.Millisecond
	// maxSweep bounds how much of a tree is searched for what an earlier daemon left.
	maxSweep = 200_000
)

// CgroupOptions are what OpenCgroups needs.
type CgroupOptions struct {
	Name   string       // from CgroupName
	Mounts string       // default /proc/self/mountinfo
	Self   string       // default /proc/self/cgroup
	Logger *slog.Logger // nil: nothing is logged
}

// Cgroups makes a cgroup for each job, below one subtree per daemon. The subtree
// keeps its name from one start of a daemon to the next: what is in it when a
// daemon starts was left by one that was killed, and is ended.
//
// There are two trees it can be in. Version 2 finds and ends every process of a
// job. The pids controller, in version 2 or in a tree of version 1, also bounds
// their number, which for root nothing else does.
//
// The subtree is there while there are jobs.
type Cgroups struct {
	log      *slog.Logger
	v2, pids string // the subtree in either tree; "" where it cannot be made
	kill     bool   // the kernel has cgroup.kill
	bounds   bool   // the number of a job's processes can be bounded

	mu   sync.Mutex // while the subtree comes and goes
	jobs int
}

var _ Groups = (*Cgroups)(nil)

// CgroupNameOf is the name of the subtree of the daemon whose state directory dir is.
func CgroupNameOf(dir string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return "", fault.New(fault.Unavailable, "look at %s: %w", dir, err)
	}
	return CgroupName(st.Dev, st.Ino), nil
}

// OpenCgroups ends what a killed daemon of this name left and makes its subtree
// anew. The error is Unavailable, with what stands in the way, where no tree can be
// written: then jobs are held without.
func OpenCgroups(o CgroupOptions) (*Cgroups, error) {
	if !isJobsName(o.Name) {
		return nil, fault.New(fault.Internal, "cgroup name %q", o.Name)
	}
	if o.Mounts == "" {
		o.Mounts = "/proc/self/mountinfo"
	}
	if o.Self == "" {
		o.Self = "/proc/self/cgroup"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	mounts, err := readWith(o.Mounts, parseMounts)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "look for cgroups: %w", err)
	}
	self, err := readWith(o.Self, parseMemberships)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "look for cgroups: %w", err)
	}
	if slices.ContainsFunc(self, func(m membership) bool { return isJobPath(m.path + "/x") }) {
		return nil, fault.New(fault.Unavailable, "this process is in the cgroup of a job itself")
	}
	c := &Cgroups{log: o.Logger}
	for _, h := range mounts {
		if (h.v2 || h.has("pids")) && !h.readOnly {
			c.sweep(h.point, o.Name)
		}
	}
	v2, pids := ownDirs(mounts, self)
	var why []error
	for _, own := range v2 {
		if parent := filepath.Dir(own); delegated(parent) {
			own = parent // the daemon was put into a leaf, so that its parent can have others
		}
		dir := filepath.Join(own, o.Name)
		if err = makeV2(own, dir); err == nil {
			c.v2 = dir
			_, err := os.Stat(filepath.Join(dir, "cgroup.kill"))
			c.kill = err == nil
			enabled, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
			c.bounds = err == nil && slices.Contains(strings.Fields(string(enabled)), "pids")
			break
		}
		why = append(why, err)
	}
	for _, own := range pids {
		if c.bounds { // version 2 does
			break
		}
		dir := filepath.Join(own, o.Name)
		if err = makeDir(own, dir, unix.CGROUP_SUPER_MAGIC); err == nil {
			c.pids, c.bounds = dir, true
			break
		}
		why = append(why, err)
	}
	if c.v2 == "" && c.pids == "" {
		return nil, fault.New(fault.Unavailable, "no cgroup can be made: %w", whyNot(mounts, why))
	}
	c.fold()
	return c, nil
}

// unfold makes the subtree anew for the first job.
func (c *Cgroups) unfold() error {
	if c.v2 != "" {
		if err := makeV2(filepath.Dir(c.v2), c.v2); err != nil {
			return err
		}
	}
	if c.pids != "" {
		return makeDir(filepath.Dir(c.pids), c.pids, unix.CGROUP_SUPER_MAGIC)
	}
	return nil
}

// fold removes the empty subtree. What is left of it, by whatever cannot be ended,
// the next start sweeps.
func (c *Cgroups) fold() {
	for _, dir := range []string{c.v2, c.pids} {
		if dir != "" {
			_ = os.Remove(dir)
		}
	}
}

func whyNot(mounts []hierarchy, why []error) error {
	switch {
	case len(why) > 0:
		return errors.Join(why...)
	case len(mounts) == 0:
		return errors.New("none are mounted")
	case !slices.ContainsFunc(mounts, func(h hierarchy) bool { return !h.readOnly }):
		return errors.New("they are mounted read-only")
	}
	return errors.New("the one this process is in is not mounted here")
}

// makeV2 makes the subtree in version 2 and lets it bound numbers if it may.
func makeV2(own, dir string) error {
	if err := makeDir(own, dir, unix.CGROUP2_SUPER_MAGIC); err != nil {
		return err
	}
	// A cgroup that has processes, as ours may, must not hand the controller on: its
	// children could then have none. The root may.
	_, err := os.Stat(filepath.Join(own, "cgroup.type"))
	if root := errors.Is(err, fs.ErrNotExist); root || noProcesses(own) {
		_ = put(own, "cgroup.subtree_control", "+pids") // else without
	}
	_ = put(dir, "cgroup.subtree_control", "+pids") // else without
	return nil
}

// delegated reports whether a service manager has handed this cgroup to the
// processes in it, and none is in it directly.
func delegated(dir string) bool {
	value := make([]byte, 8)
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(dir, name, value); err == nil && string(value[:n]) == "1" {
			return noProcesses(dir)
		}
	}
	return false
}

func noProcesses(dir string) bool {
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	return err == nil && len(procs) == 0
}

// makeDir makes a directory below own if that really is a cgroup. One that is left
// by this name is taken over: the sweep has ended what was in it.
func makeDir(own, dir string, magic int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(own, &st); err != nil {
		return fmt.Errorf("%s: %w", own, err)
	}
	if st.Type != magic {
		return fmt.Errorf("%s is no cgroup", own)
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// To be moved, a process needs a way from where it is: also our own must be writable.
	if err := unix.Access(filepath.Join(own, "cgroup.procs"), unix.W_OK); err != nil {
		_ = os.Remove(dir)
		return fmt.Errorf("%s is not delegated to this user: %w", own, err)
	}
	return nil
}

// sweep ends and removes every subtree of this name, wherever the daemon that left
// it was started.
func (c *Cgroups) sweep(point, name string) {
	seen := 0
	// The function returns no error of its own.
	_ = filepath.WalkDir(point, func(dir string, e fs.DirEntry, err error) error {
		if seen++; seen > maxSweep {
			return filepath.SkipAll
		}
		if err != nil {
			return filepath.SkipDir // not ours to look into, or gone meanwhile
		}
		if !e.IsDir() || !isJobsName(e.Name()) {
			return nil
		}
		if e.Name() != name || !mine(dir) {
			return filepath.SkipDir
		}
		if err := removeTree(dir); err != nil {
			c.log.Warn("sweep what a killed daemon left", "cgroup", dir, "error", err)
		} else {
			c.log.Info("swept what a killed daemon left", "cgroup", dir)
		}
		return filepath.SkipDir
	})
}

func mine(dir string) bool {
	var st unix.Stat_t
	return unix.Lstat(dir, &st) == nil && int(st.Uid) == os.Geteuid()
}

// Kind says by what jobs are held, for doctor.
func (c *Cgroups) Kind() string {
	kind := "cgroup v2"
	switch {
	case c.v2 == "":
		return "cgroup v1 (pids)"
	case !c.kill:
		kind += " without cgroup.kill"
	}
	if c.pids != "" {
		kind += " and v1 (pids)"
	}
	return kind
}

// Bounds reports whether the number of a job's processes can be bounded.
func (c *Cgroups) Bounds() bool { return c.bounds }

// New makes the cgroup of a job. Nothing is in it yet.
func (c *Cgroups) New(job string) (Group, error) {
	if job == "" || len(job) > 128 || strings.Trim(job, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
		return nil, fault.New(fault.Invalid, "%q is no name of a job", job)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jobs == 0 {
		if err := c.unfold(); err != nil {
			return nil, fault.New(fault.Unavailable, "make a cgroup: %w", err)
		}
	}
	g := &group{of: c}
	var err error
	if c.v2 != "" {
		g.v2 = filepath.Join(c.v2, job)
		err = os.Mkdir(g.v2, 0o750)
	}
	if err == nil && c.pids != "" {
		g.pids = filepath.Join(c.pids, job)
		if err = os.Mkdir(g.pids, 0o750); err != nil && g.v2 != "" {
			_ = os.Remove(g.v2) // the first error is the one to tell
		}
	}
	if err == nil && g.v2 != "" {
		if g.dir, err = os.OpenFile(g.v2, unix.O_PATH|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0); err != nil {
			_ = g.remove()
		}
	}
	if err != nil {
		if c.jobs == 0 {
			c.fold()
		}
		return nil, fault.New(fault.Unavailable, "make a cgroup: %w", err)
	}
	c.jobs++
	return g, nil
}

// Close ends what is left in the subtree and removes it.
func (c *Cgroups) Close() error {
	var errs []error
	for _, dir := range []string{c.v2, c.pids} {
		if dir != "" {
			errs = append(errs, removeTree(dir))
		}
	}
	return errors.Join(errs...)
}

// group is the cgroup of one job, in one tree or both.
type group struct {
	of       *Cgroups
	v2, pids string // "" where it is not
	dir      *os.File
	closed   bool // under of.mu
}

var _ Group = (*group)(nil)

// Dir is the cgroup for CLONE_INTO_CGROUP; nil if there is no version 2.
func (g *group) Dir() *os.File { return g.dir }

func (g *group) dirs() []string {
	return slices.DeleteFunc([]string{g.v2, g.pids}, func(dir string) bool { return dir == "" })
}

// Add moves a process in, with all its threads and whatever it starts from now on.
func (g *group) Add(pid int) error {
	for _, dir := range g.dirs() {
		if err := put(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fault.New(fault.Unavailable, "move process %d into its cgroup: %w", pid, err)
		}
	}
	return nil
}

// Limit bounds how many processes and threads there can be, besides the launcher.
// It is Unavailable where nothing does.
func (g *group) Limit(processes int) error {
	for _, dir := range g.dirs() {
		err := put(dir, "pids.max", strconv.Itoa(processes+ownThreads))
		if err == nil {
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fault.New(fault.Unavailable, "bound the processes of a job: %w", err)
		}
	}
	return fault.New(fault.Unavailable, "there is no pids controller to bound the processes of a job")
}

// Kill ends everything in it and returns when it is empty.
func (g *group) Kill() error {
	var errs []error
	for _, dir := range g.dirs() {
		errs = append(errs, killTree(dir))
	}
	return errors.Join(errs...)
}

// Close removes it, with whatever is still in it. Calling it again does nothing.
func (g *group) Close() error {
	g.of.mu.Lock()
	again := g.closed
	g.closed = true
	g.of.mu.Unlock()
	if again {
		return nil
	}
	err := g.remove()
	g.of.mu.Lock()
	defer g.of.mu.Unlock()
	if g.of.jobs--; g.of.jobs == 0 {
		g.of.fold()
	}
	return err
}

func (g *group) remove() error {
	var errs []error
	if g.dir != nil {
		errs = append(errs, g.dir.Close())
	}
	for _, dir := range g.dirs() {
		errs = append(errs, removeTree(dir))
	}
	return errors.Join(errs...)
}

// InJobGroup reports whether a process is in the cgroup of a job: of this daemon,
// of one that was killed, or of another instance. An error means that it could not
// be told.
func InJobGroup(pid int) (bool, error) {
	in, err := readWith(fmt.Sprintf("/proc/%d/cgroup", pid), parseMemberships)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat("/proc/self/cgroup"); errors.Is(err, fs.ErrNotExist) {
			return false, nil // a kernel without cgroups
		}
	}
	if err != nil {
		return false, fault.New(fault.Unavailable, "look up the cgroup of process %d: %w", pid, err)
	}
	return slices.ContainsFunc(in, func(m membership) bool { return isJobPath(m.path) }), nil
}

func put(dir, file, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func isEmpty(dir string) (bool, error) {
	events, err := os.ReadFile(filepath.Join(dir, "cgroup.events")) // version 2; counts what is below too
	if err == nil {
		return !slices.Contains(strings.Split(string(events), "\n"), "populated 1"), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	pids, err := pidsBelow(dir)
	return len(pids) == 0, err
}

// tree lists a cgroup and all below it, the deepest last.
func tree(dir string) (out []string, err error) {
	err = filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if e != nil && e.IsDir() {
			out = append(out, at)
		}
		return nil
	})
	if len(out) > 0 {
		slices.SortStableFunc(out, func(a, b string) int { return strings.Count(a, "/") - strings.Count(b, "/") })
	}
	return out, err
}

func pidsBelow(dir string) (pids []int, err error) {
	dirs, err := tree(dir)
	if err != nil {
		return nil, err
	}
	for _, at := range dirs {
		f, err := os.Open(filepath.Join(at, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// One that is removed meanwhile reads as empty.
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if pid, err := strconv.Atoi(lines.Text()); err == nil && pid > 0 { // 0: not of our namespace
				pids = append(pids, pid)
			}
		}
		_ = f.Close() // only read
	}
	return pids, nil
}

// killTree ends everything in a cgroup and below, and returns when it is empty.
func killTree(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "cgroup.kill")); err == nil {
		return killUntilEmpty(dir, func() error { return put(dir, "cgroup.kill", "1") })
	}
	return killOneByOne(dir)
}

// killOneByOne is for kernels before 5.14, and for version 1.
func killOneByOne(dir string) error {
	hold(dir, true)
	defer hold(dir, false)
	return killUntilEmpty(dir, func() error { return killEach(dir) })
}

func killUntilEmpty(dir string, kill func() error) error {
	over := time.NewTimer(emptyWithin)
	defer over.Stop()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		if err := kill(); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			return fault.New(fault.Unavailable, "kill what is in %s: %w", dir, err)
		}
		empty, err := isEmpty(dir)
		if empty || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) { // gone
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-over.C:
			return fault.New(fault.Unavailable, "processes in %s do not die", dir).
				WithHint("a process that waits for a disk or a network drive ends when that answers")
		}
	}
}

// hold keeps a cgroup from growing while its processes are killed one by one: it
// is frozen, which SIGKILL goes through, or may not fork. What fails here makes the
// killing take longer, nothing else.
func hold(dir string, on bool) {
	freeze := "0"
	if on {
		freeze = "1"
		_ = put(dir, "pids.max", "0")
	}
	_ = put(dir, "cgroup.freeze", freeze)
}

// killEach signals each process by a handle, after a look that it is still one of
// the cgroup's: its number may have gone to another.
func killEach(dir string) error {
	pids, err := pidsBelow(dir)
	if err != nil {
		return err
	}
	handles := map[int]int{}
	for _, pid := range pids {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil { // else it is gone
			handles[pid] = fd
		}
	}
	still, err := pidsBelow(dir)
	for pid, fd := range handles {
		if err == nil && slices.Contains(still, pid) && pid != os.Getpid() {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // the next look shows whether it helped
		}
		_ = unix.Close(fd)
	}
	return err
}

// removeTree ends what is in a cgroup and removes it. One that is gone is no error.
func removeTree(dir string) error {
	if err := killTree(dir); err != nil {
		return err
	}
	over := time.NewTimer(emptyWithin)
	defer over.Stop()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		dirs, err := tree(dir)
		for i := len(dirs) - 1; i >= 0 && err == nil; i-- {
			err = os.Remove(dirs[i])
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, syscall.EBUSY) { // the dead are still being buried
			return fault.New(fault.Unavailable, "remove a cgroup: %w", err)
		}
		select {
		case <-tick.C:
		case <-over.C:
			return fault.New(fault.Unavailable, "remove a cgroup: %w", err)
		}
	}
}

func readWith[T any](file string, parse func(io.Reader) ([]T, error)) ([]T, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parse(f)
}
