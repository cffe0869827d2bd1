package wire

import "encoding/json"

// LoopManifest is what a signed loop says of itself.
type LoopManifest struct {
	Name         string         `json:"name"`                   //
	Version      string         `json:"version"`                //
	Description  string         `json:"description,omitempty"`  //
	Host         []string       `json:"host,omitempty"`         // host functions that it may call
	Tools        []string       `json:"tools,omitempty"`        // tools that it may call
	Provides     []LoopProvides `json:"provides,omitempty"`     // tools that it lends to an agent that works for it
	Capabilities []string       `json:"capabilities,omitempty"` // CLASS:VALUE
	Schedule     string         `json:"schedule,omitempty"`     //
	Events       []string       `json:"events,omitempty"`       // kinds of event that start it
	Webhook      string         `json:"webhook,omitempty"`      // path that starts it
	MemoryMB     int            `json:"memory_mb"`              // MiB, as much as one run may have
	Module       string         `json:"module"`                 // sha256 of the module
	Source       string         `json:"source,omitempty"`       // where to read it
	BuiltAt      int64          `json:"built_at,omitempty"`     // Unix µs
}

// LoopProvides is a tool that a loop implements.
type LoopProvides struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"` // JSON Schema
}

// LoopVouching says who has signed a loop.
type LoopVouching struct {
	Tier      string `json:"tier"`                // registry, community, untrusted
	Format    int    `json:"format"`              // of the artifact: 1 is KARMAX's, 2 ours
	Publisher string `json:"publisher,omitempty"` // key; absent: nobody has signed it
	Registry  string `json:"registry,omitempty"`  // key of a trusted registry that countersigned it
}

// LoopLimits bound one run.
type LoopLimits struct {
	MemoryMB int   `json:"memory_mb"`
	TimeS    int64 `json:"time_s"` // of work; waiting does not count
	Calls    int   `json:"calls"`  // host calls that reach something
	LogBytes int   `json:"log_bytes"`
	Answer   int   `json:"answer"` // bytes of one answer to it
	Record   int   `json:"record"` // bytes of what it asked, was answered and kept by steps
}

// LoopSigned is what an installed signed loop has beside what every loop has.
type LoopSigned struct {
	SHA256      string       `json:"sha256"`            // of the whole artifact file
	Manifest    LoopManifest `json:"manifest"`          //
	Vouching    LoopVouching `json:"vouching"`          // as what it was approved
	InstalledAt int64        `json:"installed_at"`      // Unix µs, this version
	FirstAt     int64        `json:"first_at"`          // Unix µs, any version
	InstalledBy string       `json:"installed_by"`      //
	From        string       `json:"from,omitempty"`    // where it came from, as it was said
	May         []string     `json:"may"`               // what it may do, a line each
	Worst       []string     `json:"worst"`             // what it could do at worst
	Limits      LoopLimits   `json:"limits"`            //
	Webhook     string       `json:"webhook"`           // how a call of its webhook proves itself: "", open, or the name of a secret
	Stopped     string       `json:"stopped,omitempty"` // why nothing of it may run
}

// LoopUploadRequest hands a piece of an artifact over, in order. It is held for some
// minutes, in memory only.
type LoopUploadRequest struct {
	SHA256 string `json:"sha256"` // of the whole file
	Size   int    `json:"size"`   // of the whole file
	Offset int    `json:"offset"` // what was handed over before
	Data   []byte `json:"data"`   // base64; at most 4 MiB of it
}

// LoopUploadResult says how much is there.
type LoopUploadResult struct {
	Have int `json:"have"` // bytes
}

// LoopInspectRequest names an artifact that was handed over.
type LoopInspectRequest struct {
	SHA256 string `json:"sha256"`
}

// LoopPreview is what installing an artifact would mean.
type LoopPreview struct {
	SHA256   string       `json:"sha256"` // what an approval has to name
	Size     int          `json:"size"`
	Manifest LoopManifest `json:"manifest"`
	Vouching LoopVouching `json:"vouching"`
	Vouched  string       `json:"vouched,omitempty"`  // who vouches for it, for people
	May      []string     `json:"may"`                // what it may do, a line each
	Worst    []string     `json:"worst"`              // what it could do at worst
	Limits   LoopLimits   `json:"limits"`             //
	Unsigned []string     `json:"unsigned,omitempty"` // what no signature covers; each line has to be confirmed
	Unknown  []string     `json:"unknown,omitempty"`  // host functions that it calls and ombud does not have
	Missing  []string     `json:"missing,omitempty"`  // tools that it calls and ombud does not have
	Warnings []string     `json:"warnings,omitempty"` // what else is odd about it

	Replaces  string   `json:"replaces,omitempty"`  // the version that is installed
	More      []string `json:"more,omitempty"`      // what it may do and that may not
	Less      []string `json:"less,omitempty"`      // what that may do and it may not
	Added     []string `json:"added,omitempty"`     // the same, as manifests name it
	Removed   []string `json:"removed,omitempty"`   //
	Downgrade string   `json:"downgrade,omitempty"` // that it is an older version
	Another   string   `json:"another,omitempty"`   // the publisher until now, if that is another
	Same      bool     `json:"same,omitempty"`      // it is the very file that is installed
	TypeName  string   `json:"type_name,omitempty"` // why its name has to be typed; absent: a yes is enough
}

// LoopInstallRequest is the approval of an artifact that was inspected.
type LoopInstallRequest struct {
	SHA256    string   `json:"sha256"`              // as the preview says it
	Name      string   `json:"name,omitempty"`      // the loop's, as it was typed
	Unsigned  []string `json:"unsigned,omitempty"`  // the lines that were confirmed
	Downgrade bool     `json:"downgrade,omitempty"` // an older version is meant
	Upgrade   bool     `json:"upgrade,omitempty"`   // a version of it has to be there
	Disabled  bool     `json:"disabled,omitempty"`  // nothing starts it until it is enabled
	From      string   `json:"from,omitempty"`      // where it came from, for people
}

// LoopSetRequest changes the settings of a signed loop. What is absent stays.
type LoopSetRequest struct {
	Name     string        `json:"name"`
	Set      []LoopSetting `json:"set,omitempty"`
	Unset    []string      `json:"unset,omitempty"`
	TimeoutS *int64        `json:"timeout_s,omitempty"` // of one run's work; 0: the usual
	Webhook  *string       `json:"webhook,omitempty"`   // "": it has none; open; or the name of a secret
}

// LoopVerifyRequest asks whether installed loops are what was approved.
type LoopVerifyRequest struct {
	Name string `json:"name,omitempty"` // absent: all
}

// LoopVerifyResult is what became of each.
type LoopVerifyResult struct {
	Loops []LoopVerified `json:"loops"`
}

// LoopVerified is whether one loop is what was approved.
type LoopVerified struct {
	Name    string   `json:"name"`
	Version string   `json:"version"`
	SHA256  string   `json:"sha256"`
	Problem *Problem `json:"problem,omitempty"` // absent: it is
	Notes   []string `json:"notes,omitempty"`
}

// Trust is a key that is trusted or revoked, or the community.
type Trust struct {
	Kind string `json:"kind"`           // registry, publisher, revoked, community
	Key  string `json:"key,omitempty"`  // absent of the community
	URL  string `json:"url,omitempty"`  // of a registry: its index has to be signed by the key
	Note string `json:"note,omitempty"` // for you
	By   string `json:"by,omitempty"`
	At   int64  `json:"at,omitempty"` // Unix µs
}

// TrustListResult is all that is trusted.
type TrustListResult struct {
	Trust []Trust `json:"trust"`
	Own   string  `json:"own,omitempty"` // the key of this machine's publisher, which is trusted too
}

// TrustChangeRequest changes what is trusted, all of it or nothing.
type TrustChangeRequest struct {
	Add    []Trust `json:"add,omitempty"`
	Remove []Trust `json:"remove,omitempty"` // by kind and key
}

// TrustChangeResult is what that stopped or let go on.
type TrustChangeResult struct {
	Stopped []string `json:"stopped,omitempty"` // loops signed by a key that is revoked now
	Freed   []string `json:"freed,omitempty"`   // loops that run again
}
