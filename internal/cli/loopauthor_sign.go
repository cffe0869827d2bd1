package cli

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/signed"
	"github.com/ombud-run/ombud/internal/wholefile"
	"github.com/ombud-run/ombud/wasmloop"
)

// signing is what a person says of an artifact to be made.
type signing struct {
	manifest, module, output string
	countersign, unsigned    bool
}

// signedLoop is an artifact that was made.
type signedLoop struct {
	Name      string `json:"name"`
	Version   string `json:"version"`
	File      string `json:"file"`
	SHA256    string `json:"sha256"`
	Publisher string `json:"publisher,omitempty"`
}

func (a *app) loopSignCmd() *cobra.Command {
	var s signing
	c := a.command(spec{
		use: "sign [DIR]", short: "pack and sign what was built, as one file to install or publish",
		long: `Writes NAME-VERSION.oloop: loop.yaml and the module under your signature, which covers all of
it. The key is the instance's; if there is none, one is made. --countersign signs for a
registry too, with the same key. Without a signature (--unsigned) whoever installs it has
to type its name.`,
		example: "ombud loop sign\nombud loop sign ./hello -o dist/hello.oloop\nombud loop sign --manifest loop.yaml --module other.wasm",
		args:    cobra.MaximumNArgs(1),
	}, func(ctx context.Context, args []string) error {
		if s.unsigned && s.countersign {
			return fault.New(fault.Usage, "--unsigned and --countersign are opposites")
		}
		dir := here(args)
		if s.manifest == "" {
			s.manifest = filepath.Join(dir, "loop.yaml")
		}
		out, err := a.sign(ctx, dir, s)
		if err != nil {
			return err
		}
		return a.show("loop-sign/1", out, func(p *page) {
			p.line("wrote %s", out.File)
			p.field("sha256", out.SHA256)
			p.field("publisher", out.Publisher)
			p.line("%s", p.faint("ombud loop install "+out.File))
		})
	})
	c.Flags().StringVar(&s.manifest, "manifest", "", "the manifest (default DIR/loop.yaml)")
	c.Flags().StringVar(&s.module, "module", "", "the module (default DIR/NAME.wasm)")
	c.Flags().StringVarP(&s.output, "output", "o", "", "the file to write (default DIR/NAME-VERSION.oloop)")
	c.Flags().BoolVar(&s.countersign, "countersign", false, "also as a registry that has reviewed it")
	c.Flags().BoolVar(&s.unsigned, "unsigned", false, "without a signature")
	return c
}

func (a *app) sign(ctx context.Context, dir string, s signing) (out signedLoop, err error) {
	m, err := readLoopYAML(s.manifest)
	if err != nil {
		return out, err
	}
	if s.module == "" {
		s.module = filepath.Join(dir, m.Name+".wasm")
	}
	module, err := readPart(s.module, maxModule)
	if fault.Is(err, fault.NotFound) {
		return out, fault.New(fault.NotFound, "%w", err).WithHint("ombud loop build makes it")
	}
	if err != nil {
		return out, err
	}
	a.noteOld(s.module)
	if err := runnable(ctx, m, module); err != nil {
		return out, err
	}
	if strings.ContainsAny(m.Version, `/\ `) || strings.HasPrefix(m.Version, ".") {
		return out, fault.New(fault.Config, "%s: version: %q cannot be part of a file's name", s.manifest, m.Version)
	}
	m.SHA256 = signed.Sum(module)
	if m.BuiltAt == 0 {
		m.BuiltAt = a.now().Unix()
	}
	data, err := a.pack(&m, module, s)
	if err != nil {
		return out, err
	}
	if s.output == "" {
		s.output = filepath.Join(dir, m.Name+"-"+m.Version+".oloop")
	}
	if err := writePublic(s.output, data); err != nil {
		return out, err
	}
	return signedLoop{m.Name, m.Version, s.output, signed.Sum(data), m.Publisher}, nil
}

// pack makes the file of an artifact and sees that it holds.
func (a *app) pack(m *wasmloop.Manifest, module []byte, s signing) ([]byte, error) {
	var sigs []wasmloop.Signature
	if !s.unsigned {
		priv, err := a.key()
		if err != nil {
			return nil, err
		}
		public := publicOf(priv)
		if m.Publisher != "" && m.Publisher != public {
			return nil, fault.New(fault.Conflict, "%s names the publisher %s, and your key is %s", s.manifest, m.Publisher, public).
				WithHint("leave publisher out of loop.yaml, or take over that key: ombud loop keygen --from FILE")
		}
		m.Publisher = public
		sigs = append(sigs, wasmloop.Sign(m, wasmloop.RolePublisher, priv))
		if s.countersign {
			sigs = append(sigs, wasmloop.Sign(m, wasmloop.RoleRegistry, priv))
		}
	} else if m.Publisher != "" {
		return nil, fault.New(fault.Conflict, "%s names a publisher, and nobody is to sign it", s.manifest).WithHint("leave publisher out of loop.yaml")
	}
	data, err := wasmloop.Pack(*m, module, sigs)
	if err != nil {
		return nil, fault.New(fault.Invalid, "%w", err)
	}
	if _, _, err := wasmloop.VerifyBytes(data, wasmloop.Trust{AllowUntrusted: true}); err != nil {
		return nil, fault.New(fault.Internal, "what was packed does not verify: %w", err)
	}
	return data, nil
}

// key is the key of the instance, which is made if there is none.
func (a *app) key() (ed25519.PrivateKey, error) {
	priv, err := readKey(a.where.PublisherFile())
	if !fault.Is(err, fault.NotFound) {
		return priv, err
	}
	if priv, err = a.newKey(""); err != nil {
		return nil, err
	}
	a.note("made your publisher's key, %s: keep a copy of %s", publicOf(priv), a.where.PublisherFile())
	return priv, nil
}

// noteOld tells when a module is older than a source beside it.
func (a *app) noteOld(module string) {
	built, err := os.Stat(module)
	if err != nil {
		return // it was read just now
	}
	_ = filepath.WalkDir(filepath.Dir(module), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // what cannot be read is no source
		case d.IsDir() && (d.Name() == "vendor" || d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && d.Name() != "."):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".ts") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		if info, err := d.Info(); err == nil && info.ModTime().After(built.ModTime()) {
			a.note("%s is older than %s: ombud loop build", module, path)
			return fs.SkipAll
		}
		return nil
	})
}

// writePublic replaces a file that is made to be handed on.
func writePublic(path string, data []byte) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755) //nolint:gosec // as the file
	if err == nil {
		err = wholefile.Replace(path, data)
	}
	if err == nil {
		err = os.Chmod(path, 0o644) //nolint:gosec // it is made to be read by others
	}
	if err != nil {
		return fault.New(fault.Unavailable, "write %s: %w", path, err)
	}
	return nil
}

func (a *app) loopIndexCmd() *cobra.Command {
	var output, base string
	c := a.command(spec{
		use: "index FILE…", short: "make the signed catalogue of a registry, of the artifacts it holds",
		long: `Writes index.json: each artifact with its digest, and your signature over all of it. Put it
and the artifacts where a web server or a repository hands them out, and others reach them
with OMBUD_REGISTRY and ombud loop search. KARMAX reads it too, but for the signature.
An artifact is named by its path from the index, or by --base and its name.`,
		example: "ombud loop index *.oloop\nombud loop index -o registry/index.json registry/*.oloop",
		args:    cobra.MinimumNArgs(1),
	}, func(_ context.Context, args []string) error {
		idx, err := indexOf(args, filepath.Dir(output), base)
		if err != nil {
			return err
		}
		priv, err := a.key()
		if err != nil {
			return err
		}
		if err := wasmloop.SignIndex(&idx, a.now(), priv); err != nil {
			return fault.New(fault.Invalid, "%w", err)
		}
		text, err := json.MarshalIndent(idx, "", "  ")
		if err != nil {
			return err
		}
		if err := writePublic(output, append(text, '\n')); err != nil {
			return err
		}
		return a.show("loop-index/1", idx, func(p *page) {
			p.line("wrote %s with %s", output, plural(int64(len(idx.Entries)), "loop"))
			p.field("registry key", idx.RegistryKey)
			p.field("signed", time.Unix(idx.Signature.At, 0).UTC().Format(time.RFC3339))
		})
	})
	c.Flags().StringVarP(&output, "output", "o", "index.json", "the file to write")
	c.Flags().StringVar(&base, "base", "", "the URL that the artifacts are below (default: beside the index)")
	return c
}

// indexOf makes the entries of artifacts.
func indexOf(files []string, dir, base string) (idx wasmloop.Index, err error) {
	for _, file := range files {
		data, err := readPart(file, signed.MaxArtifact)
		if err != nil {
			return idx, err
		}
		art, _, err := wasmloop.VerifyBytes(data, wasmloop.Trust{AllowUntrusted: true})
		if err != nil {
			return idx, fault.New(fault.Verification, "%s: %w", file, err)
		}
		at := strings.TrimSuffix(base, "/") + "/" + filepath.Base(file)
		if base == "" {
			rel, err := filepath.Rel(dir, file)
			if err != nil || strings.HasPrefix(rel, "..") {
				return idx, fault.New(fault.Invalid, "%s is not below the directory of the index", file).WithHint("put it there, or say with --base where it is handed out")
			}
			at = filepath.ToSlash(rel)
		}
		m := art.Manifest
		idx.Entries = append(idx.Entries, wasmloop.RegistryEntry{
			Name: m.Name, Kind: wasmloop.KindWorkflow, Version: m.Version, Description: m.Description, Source: m.SourceURL,
			Artifact: at, SHA256: signed.Sum(data), Requires: m.Tools,
		})
	}
	return idx, nil
}
