package wasmloop

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Grant is one thing a subject may do, as an Installer hands it to its Store.
type Grant struct {
	Subject    string // "loop:NAME"
	Capability string // the class: http, memory, tool, channel, spend
	Value      string
	GrantedBy  string
	GrantedAt  time.Time
}

// Store is what install needs to record grants.
type Store interface {
	SaveGrant(Grant) error
	RevokeSubject(string) (int64, error)
}

// Installer performs installs against a directory.
type Installer struct {
	Dir    string
	Broker Store
	Trust  Trust
	// Actor is recorded in the lockfile, so that "who installed this" has an answer.
	Actor string
	// ConfirmUnsigned says that the operator was shown [Preview.Unsigned] and accepts each
	// line. Without it an artifact that has such lines is not installed.
	ConfirmUnsigned bool
}

// Preview is what the operator is shown before anything is written.
type Preview struct {
	Manifest Manifest
	Verdict  *Verdict
	// Grants is the plain-English list of what it will be allowed to do.
	Grants []string
	// Diff is set when this replaces an installed version.
	Diff *CapabilityDiff
	// Upgrade is the version being replaced, if any.
	Upgrade string
	// Unsigned is what of the manifest no signature covers, see [Artifact.Unsigned].
	Unsigned []string
	// Unknown are host functions that it calls and this host does not have.
	Unknown []string
}

// Inspect verifies an artifact and reports what installing it would mean, without writing
// anything.
func (in *Installer) Inspect(data []byte) (*Preview, error) {
	_, p, err := in.inspect(data)
	return p, err
}

func (in *Installer) inspect(data []byte) (*Artifact, *Preview, error) {
	a, v, err := VerifyBytes(data, in.Trust)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range a.Manifest.Capabilities {
		if class, value, ok := strings.Cut(c, ":"); !ok || class == "" || value == "" {
			return nil, nil, fmt.Errorf("%w: capability %q of %s is not class:value", ErrMalformed, c, a.Manifest.Name)
		}
	}
	p := &Preview{
		Manifest: a.Manifest, Verdict: v, Grants: Describe(a.Manifest), Unsigned: a.Unsigned(),
		Unknown: UnknownHostFunctions(a.Manifest.Host),
	}
	lock, err := LoadLock(in.Dir)
	if err != nil {
		return nil, nil, err
	}
	if old, there := lock.Get(a.Manifest.Name); there {
		d := DiffCapabilities(old, a.Manifest)
		p.Diff, p.Upgrade = &d, old.Version
	}
	return a, p, nil
}

// Install writes the artifact, records it, and grants exactly what its manifest declared.
//
// The file has a name of its own for each content, so the one that the lockfile pins is
// never written over. The lockfile is the moment of change. Grants are replaced as a
// whole, so an upgrade that dropped a capability loses it.
func (in *Installer) Install(data []byte) (*Preview, error) {
	a, p, err := in.inspect(data)
	if err != nil {
		return nil, err
	}
	if len(p.Unsigned) > 0 && !in.ConfirmUnsigned {
		return nil, fmt.Errorf("%w: %d parts of %s are not covered by its signature and were not confirmed: %s",
			ErrUntrusted, len(p.Unsigned), a.Manifest.Name, strings.Join(p.Unsigned, "; "))
	}
	if err := in.Mend(); err != nil {
		return nil, err
	}
	lock, err := LoadLock(in.Dir)
	if err != nil {
		return nil, err
	}
	e := in.entry(a, p.Verdict, data)
	old, upgrade := lock.Get(e.Name)
	if upgrade {
		e.Enabled = old.Enabled
	}
	if err := writeFile(filepath.Join(in.Dir, e.File), data); err != nil {
		return nil, fmt.Errorf("write %s: %w", e.File, err)
	}
	lock.Put(e)
	if err := lock.Save(in.Dir); err != nil {
		return nil, err
	}
	if err := in.Mend(); err != nil {
		return nil, err
	}
	if upgrade && old.File != e.File {
		if err := in.removeFile(old.File); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (in *Installer) entry(a *Artifact, v *Verdict, data []byte) Entry {
	m := &a.Manifest
	e := Entry{
		Name: m.Name, Version: m.Version, SHA256: a.Digest(), Publisher: v.Publisher, Registry: v.Registry, Tier: v.Tier,
		Host: m.Host, Capabilities: m.Capabilities, Source: m.SourceURL, InstalledBy: in.Actor,
		InstalledAt: time.Now().UTC().Truncate(time.Second), Enabled: true,
		FileSHA256: digest(data), Tools: m.Tools, Granting: true,
	}
	for _, p := range m.Provides {
		e.Provides = append(e.Provides, p.Name)
	}
	ext := ".oloop"
	if a.v1 {
		ext = ".kloop"
	}
	e.File = m.Name + "-" + e.FileSHA256[:12] + ext
	return e
}

// Mend finishes what a crash cut off: it writes the grants of an entry that was recorded
// and not granted yet. Install, Load and Installed do it by themselves.
func (in *Installer) Mend() error {
	lock, err := LoadLock(in.Dir)
	if err != nil {
		return err
	}
	for _, e := range lock.Entries {
		if !e.Granting {
			continue
		}
		if err := in.grant(e); err != nil {
			return fmt.Errorf("grant what %s declared: %w", e.Name, err)
		}
		e.Granting = false
		lock.Put(e)
		if err := lock.Save(in.Dir); err != nil {
			return err
		}
	}
	return nil
}

// grant replaces all grants of a loop.
func (in *Installer) grant(e Entry) error {
	if in.Broker == nil {
		return nil
	}
	subject := "loop:" + e.Name
	if _, err := in.Broker.RevokeSubject(subject); err != nil {
		return err
	}
	grants := slices.Clone(e.Capabilities)
	for _, t := range e.Tools {
		grants = append(grants, "tool:"+t)
	}
	for _, p := range e.Provides {
		grants = append(grants, "tool:provides:"+p)
	}
	slices.Sort(grants)
	for _, g := range slices.Compact(grants) {
		class, value, _ := strings.Cut(g, ":")
		err := in.Broker.SaveGrant(Grant{Subject: subject, Capability: class, Value: value, GrantedBy: in.Actor, GrantedAt: e.InstalledAt})
		if err != nil {
			return err
		}
	}
	return nil
}

// Installed lists what is in the lockfile.
func (in *Installer) Installed() ([]Entry, error) {
	if err := in.Mend(); err != nil {
		return nil, err
	}
	lock, err := LoadLock(in.Dir)
	if err != nil {
		return nil, err
	}
	return lock.Entries, nil
}

// Load reads an installed loop back and verifies it again: it must be, byte for byte, the
// file that was approved, and be worth the tier it was approved at.
func (in *Installer) Load(name string) (*Artifact, error) {
	if err := in.Mend(); err != nil {
		return nil, err
	}
	lock, err := LoadLock(in.Dir)
	if err != nil {
		return nil, err
	}
	e, there := lock.Get(name)
	if !there {
		return nil, fmt.Errorf("%w: loop %q", ErrNotInstalled, name)
	}
	data, err := in.readFile(e.File)
	if err != nil {
		return nil, fmt.Errorf("read loop %s: %w", name, err)
	}
	if e.FileSHA256 == "" {
		return nil, fmt.Errorf("%w: the lockfile does not pin the whole file of %s; install it again", ErrUntrusted, name)
	}
	if got := digest(data); got != e.FileSHA256 {
		return nil, fmt.Errorf("%w: %s has the sha256 %s, and %s was approved", ErrAltered, e.File, got, e.FileSHA256)
	}
	trust := in.Trust // the tier it has was accepted when it was installed
	trust.AllowCommunity = trust.AllowCommunity || e.Tier == TierCommunity
	trust.AllowUntrusted = trust.AllowUntrusted || e.Tier == TierUntrusted
	a, v, err := VerifyBytes(data, trust)
	if err != nil {
		return nil, err
	}
	if v.Tier != e.Tier || a.Manifest.Name != e.Name || a.Digest() != e.SHA256 {
		return nil, fmt.Errorf("%w: %s was approved as %s %s and is %s %s now", ErrAltered, name, e.Tier, e.Name, v.Tier, a.Manifest.Name)
	}
	return a, nil
}

// Remove uninstalls a loop and takes its capabilities with it.
func (in *Installer) Remove(name string) error {
	lock, err := LoadLock(in.Dir)
	if err != nil {
		return err
	}
	e, there := lock.Get(name)
	if !there {
		return fmt.Errorf("%w: loop %q", ErrNotInstalled, name)
	}
	if in.Broker != nil { // first: a loop that is half removed can do nothing
		if _, err := in.Broker.RevokeSubject("loop:" + name); err != nil {
			return err
		}
	}
	lock.Remove(name)
	if err := lock.Save(in.Dir); err != nil {
		return err
	}
	return in.removeFile(e.File)
}

// inDir refuses a name from a lockfile that leads out of the directory.
func (in *Installer) inDir(file string) (string, error) {
	if file == "" || filepath.Base(file) != file || file == "." || file == ".." {
		return "", fmt.Errorf("%w: the lockfile names the file %q", ErrMalformed, file)
	}
	return filepath.Join(in.Dir, file), nil
}

func (in *Installer) readFile(file string) ([]byte, error) {
	path, err := in.inDir(file)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxArtifact {
		return nil, fmt.Errorf("%w: %s is longer than an artifact can be", ErrMalformed, file)
	}
	return os.ReadFile(path) //nolint:gosec // checked above
}

func (in *Installer) removeFile(file string) error {
	path, err := in.inDir(file)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
