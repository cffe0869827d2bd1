package wasmloop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// Manifest is what an artifact says of itself: what it is, what it may reach and what
// starts it. The operator approves exactly this. Of an artifact of format v2 all of it is
// inside the signature; of format v1 Description, Tools and Provides are not (see
// [Artifact.Unsigned]).
//
// It is also written by hand as loop.yaml, under the same keys.
type Manifest struct {
	Name        string `json:"name"        yaml:"name"`        // without '/', '\' and spaces
	Version     string `json:"version"     yaml:"version"`     // for people; not compared
	Description string `json:"description" yaml:"description"` // for people
	Publisher   string `json:"publisher"   yaml:"publisher"`   // Ed25519 key of who signed it, base64 raw URL; "" if nobody did

	// Host names the host functions the module may call; a call of another is refused.
	Host []string `json:"host" yaml:"host"`
	// Tools names the tools the module may call through the host function "tool".
	Tools []string `json:"tools,omitempty" yaml:"tools"`
	// Provides are tools that the module implements and lends to an agent, for as long as
	// the agent works for this loop.
	Provides []ToolSpec `json:"provides,omitempty" yaml:"provides"`
	// Capabilities are grants, each class:value: "http:api.github.com", "memory:main:write".
	Capabilities []string `json:"capabilities" yaml:"capabilities"`

	Schedule string   `json:"schedule,omitempty" yaml:"schedule"` // cron of 5 or 6 fields, or "@every 1h"
	Events   []string `json:"events,omitempty"   yaml:"events"`   // kinds of event that start it
	Webhook  string   `json:"webhook,omitempty"  yaml:"webhook"`  // path that starts it

	// MemoryMB is the most memory an instance may have, in MiB; 0 for the default of 64.
	MemoryMB int `json:"memory_mb,omitempty" yaml:"memory_mb"`

	SHA256 string `json:"sha256" yaml:"sha256"` // of the module's bytes, 64 lower-case hex digits

	SourceURL string `json:"source_url,omitempty" yaml:"source_url"` // where to read it
	BuiltAt   int64  `json:"built_at,omitempty"   yaml:"built_at"`   // Unix seconds
}

// BuiltAtTime is BuiltAt as a time, in UTC; the zero time if it is not known.
func (m *Manifest) BuiltAtTime() time.Time {
	if m.BuiltAt == 0 {
		return time.Time{}
	}
	return time.Unix(m.BuiltAt, 0).UTC()
}

// ToolSpec is a tool that a module implements, as an agent needs it to call it.
type ToolSpec struct {
	Name        string          `json:"name"                 yaml:"name"`
	Description string          `json:"description"          yaml:"description"`
	Parameters  json.RawMessage `json:"parameters,omitempty" yaml:"-"` // a JSON Schema
}

// UnmarshalYAML reads a tool of a loop.yaml, where the schema is written as YAML. Its only
// form afterwards is JSON, which is what is signed and what a model is shown.
func (t *ToolSpec) UnmarshalYAML(data []byte) error {
	var in struct {
		Name        string `yaml:"name"`
		Description string `yaml:"description"`
		Parameters  schema `yaml:"parameters"`
	}
	if err := yaml.UnmarshalWithOptions(data, &in, yaml.Strict()); err != nil {
		return err
	}
	*t = ToolSpec{Name: in.Name, Description: in.Description, Parameters: json.RawMessage(in.Parameters)}
	return nil
}

// schema is JSON that was written as YAML.
type schema json.RawMessage

// UnmarshalYAML makes JSON of YAML.
func (s *schema) UnmarshalYAML(data []byte) error {
	raw, err := yaml.YAMLToJSON(data)
	if err != nil {
		return err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return err
	}
	*s = compact.Bytes()
	return nil
}

// ParseManifest reads a loop.yaml. An unknown key is an error that names its place.
func ParseManifest(data []byte) (_ Manifest, err error) {
	defer func() { // the reader of YAML fails so on some texts, as a list with a tag of its own
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: the manifest is no YAML that can be read: %v", ErrMalformed, r)
		}
	}()
	var m Manifest
	dec := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	if err := dec.Decode(&m); err != nil {
		return Manifest{}, fmt.Errorf("read the manifest: %w", err)
	}
	if err := m.named(); err != nil {
		return Manifest{}, err
	}
	return m, nil
}

// named refuses a manifest without a name that can be one.
func (m *Manifest) named() error {
	switch {
	case strings.TrimSpace(m.Name) == "":
		return fmt.Errorf("%w: the manifest has no name", ErrMalformed)
	case strings.ContainsAny(m.Name, `/\ `):
		return fmt.Errorf(`%w: the name %q has a '/', '\' or space in it`, ErrMalformed, m.Name)
	case strings.TrimSpace(m.Version) == "":
		return fmt.Errorf("%w: the manifest of %s has no version", ErrMalformed, m.Name)
	}
	return nil
}
