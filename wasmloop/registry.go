package wasmloop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/guard"
)

// DefaultRegistry is where loops are fetched from.
const DefaultRegistry = "https://raw.githubusercontent.com/MelloB1989/karmax-loops/main"

// IndexFile is the index's path within a registry.
const IndexFile = "/index.json"

const (
	maxIndex     = 4 << 20
	maxArtifact  = int64(headStart) + maxHeaderV2 + maxModule
	fetchTimeout = 60 * time.Second
)

// Kind distinguishes the two tiers a registry holds.
type Kind string

const (
	// KindRecipe is a declarative YAML automation. No signature, no sandbox: it is read as
	// data.
	KindRecipe Kind = "recipe"
	// KindWorkflow is a signed WASM module.
	KindWorkflow Kind = "workflow"
)

// Index is a registry's catalogue.
type Index struct {
	Version int             `json:"version"`
	Entries []RegistryEntry `json:"entries"`
	// RegistryKey is the countersigning key this registry uses. It is published so that it
	// can be offered; the operator still has to accept it, since a key that vouches for
	// itself vouches for nothing.
	RegistryKey string `json:"registry_key,omitempty"`
	// Signature covers all of the index. KARMAX's have none.
	Signature *IndexSignature `json:"signature,omitempty"`
}

// RegistryEntry is one installable thing in a registry.
type RegistryEntry struct {
	Name        string   `json:"name"`
	Kind        Kind     `json:"kind"`
	Version     string   `json:"version"`
	Description string   `json:"description"`
	Author      string   `json:"author,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	// Source is the path in the registry's repository, for who reads before installing.
	Source string `json:"source,omitempty"`
	// Artifact is where the installable bytes are: a URL, or a path within the registry.
	Artifact string `json:"artifact"`
	// SHA256 pins the whole artifact file. For a recipe it is the only check there is.
	SHA256 string `json:"sha256,omitempty"`
	// ShipWithKARMAX marks what a fresh install starts with.
	ShipWithKARMAX bool `json:"ship_with_karmax,omitempty"`
	// Requires names tools the entry expects to exist.
	Requires []string `json:"requires,omitempty"`
}

// Find returns one entry by name.
func (idx *Index) Find(name string) (RegistryEntry, bool) {
	for _, e := range idx.Entries {
		if e.Name == name {
			return e, true
		}
	}
	return RegistryEntry{}, false
}

// ShipWith returns the entries a fresh install starts with.
func (idx *Index) ShipWith() (out []RegistryEntry) {
	for _, e := range idx.Entries {
		if e.ShipWithKARMAX {
			out = append(out, e)
		}
	}
	return out
}

// Client fetches from a registry. The zero value with a BaseURL works.
type Client struct {
	BaseURL string
	// HTTP makes the requests. nil is a client that reaches the registry's own host and
	// public addresses, and gives up after a minute.
	HTTP *http.Client
}

// NewClient builds a client for the registry that OMBUD_REGISTRY names, else the default.
func NewClient() *Client {
	base := DefaultRegistry
	if env := fromEnv(varRegistry); len(env) > 0 {
		base = env[0]
	}
	return &Client{BaseURL: strings.TrimSuffix(base, "/")}
}

var varRegistry = []string{"OMBUD_REGISTRY", "KARMAX_REGISTRY"}

// Index fetches and parses the catalogue.
func (c *Client) Index(ctx context.Context) (*Index, error) {
	data, err := c.get(ctx, strings.TrimSuffix(c.BaseURL, "/")+IndexFile, maxIndex)
	if err != nil {
		return nil, fmt.Errorf("fetch the registry's index: %w", err)
	}
	var idx Index
	if err := json.Unmarshal(data, &idx); err != nil {
		return nil, fmt.Errorf("%w: the registry's index: %w", ErrMalformed, err)
	}
	if idx.Version != 1 {
		return nil, fmt.Errorf("%w: the registry's index has version %d; this program reads 1", ErrMalformed, idx.Version)
	}
	return &idx, nil
}

// Fetch downloads an entry's artifact and checks it against the index, before the bytes go
// anywhere near an installer. An entry without a digest is refused: for a recipe it is the
// only check, and for a workflow it tells one version of a file from another.
func (c *Client) Fetch(ctx context.Context, e RegistryEntry) ([]byte, error) {
	if e.SHA256 == "" {
		return nil, fmt.Errorf("%w: the registry names no sha256 for %s", ErrUntrusted, e.Name)
	}
	from, err := c.resolve(e.Artifact)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", e.Name, err)
	}
	data, err := c.get(ctx, from, maxArtifact)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", e.Name, err)
	}
	if got := digest(data); got != strings.ToLower(e.SHA256) {
		return nil, fmt.Errorf("%w: %s has the sha256 %s and the registry's index says %s", ErrAltered, from, got, e.SHA256)
	}
	return data, nil
}

// resolve makes a URL of what an entry calls its artifact.
func (c *Client) resolve(artifact string) (string, error) {
	base, err := url.Parse(strings.TrimSuffix(c.BaseURL, "/") + "/")
	if err != nil {
		return "", fmt.Errorf("%w: registry %q: %w", ErrMalformed, c.BaseURL, err)
	}
	ref, err := url.Parse(artifact)
	if err != nil || artifact == "" {
		return "", fmt.Errorf("%w: it is said to be at %q", ErrMalformed, artifact)
	}
	if ref.IsAbs() {
		if ref.Scheme != "https" && ref.Scheme != base.Scheme {
			return "", fmt.Errorf("%w: it is said to be at %s, which is not https", ErrUntrusted, artifact)
		}
		return ref.String(), nil
	}
	ref.Path = strings.TrimPrefix(ref.Path, "/")
	return base.ResolveReference(ref).String(), nil
}

func (c *Client) get(ctx context.Context, from string, most int64) (_ []byte, err error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", from, resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", from, err)
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("%w: %s is longer than %d bytes", ErrMalformed, from, most)
	}
	return data, nil
}

func (c *Client) client() (*http.Client, error) {
	if c.HTTP != nil {
		return c.HTTP, nil
	}
	base, err := url.Parse(c.BaseURL)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("%w: registry %q is no URL", ErrMalformed, c.BaseURL)
	}
	egress, err := guard.NewEgress(guard.EgressConfig{AllowHosts: []string{base.Host}})
	if err != nil {
		return nil, err
	}
	return guard.HTTPClient(guard.HTTPConfig{Egress: egress, Timeout: fetchTimeout, MaxBody: maxArtifact + 1}), nil
}
