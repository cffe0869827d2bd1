package arch

// module is the prefix of every import path of ours.
const module = "github.com/ombud-run/ombud"

// floor is a storey of the house: a package imports from the floors below its
// own, and within its own only along edges.
type floor int

const (
	ground    floor = iota + 1 // what everything stands on
	record                     // what happened
	authority                  // what may happen
	work                       // doing it, durably
	mind                       // deciding what to do
	tiers                      // work described by others
	edges                      // the outside, one package a technology
	surface                    // people and programs reach us here
	roof                       // wiring and commands
	support                    // only for tests and measurements: reaches everything, is reached by no shipped code
)

// floors gives every package its floor. "x/*" stands for the packages directly
// in x. Packages of DESIGN that do not exist yet are listed too.
var floors = map[string]floor{
	"internal/fault":     ground,
	"internal/failpoint": ground,
	"internal/id":        ground,
	"internal/instance":  ground,
	"internal/label":     ground,
	"internal/redact":    ground,
	"internal/wholefile": ground,
	"internal/wire":      ground,
	"internal/db":        ground,
	"internal/vault":     ground,
	"internal/blob":      ground,
	"internal/hold":      ground,
	"internal/cron":      ground,

	"internal/eventlog": record,
	"internal/audit":    record,
	"internal/lease":    record,

	"internal/scope":     authority,
	"internal/confine":   authority,
	"internal/supervise": authority,
	"internal/confine/*": authority,
	"internal/policy":    authority,
	"internal/approval":  authority,
	"internal/grant":     authority,
	"internal/pairing":   authority,
	"internal/budget":    authority,
	"internal/secret":    authority,
	"internal/guard":     authority,
	"internal/tool":      authority,
	"internal/form":      authority,

	"internal/run":    work,
	"internal/act":    work,
	"internal/job":    work,
	"internal/outbox": work,

	// What was given up, by whomever, and how it is done again.
	"internal/deadletter": work,

	"internal/backup": work,

	// Schedules: what starts by itself at times.
	"internal/schedule": work,

	// Triggers: what can be started, and what starts it.
	"internal/trigger": work,

	// It keeps files for undo and sees calls as act does, before and after their effect.
	"internal/checkpoint": work,

	"internal/model":   mind,
	"internal/model/*": mind,
	"internal/memory":  mind,
	"internal/agent":   mind,

	"internal/recipe":   tiers,
	"internal/loops":    tiers,
	"internal/signed":   tiers,
	"internal/workflow": tiers,
	"internal/compat/*": tiers,
	"wasmloop":          tiers,
	"wasmloop/abi":      tiers,
	"sdk/loop":          tiers,

	// Text becomes what a network shows.
	"internal/channel/markup": ground,

	// The root of the module holds sources that others unpack.
	".": ground,

	"internal/channel":     edges,
	"internal/channel/*":   edges,
	"internal/harness":     edges,
	"internal/harness/*":   edges,
	"internal/delegate":    edges,
	"internal/mcp/*":       edges,
	"internal/hub":         edges,
	"internal/tools/*":     edges,
	"internal/connector/*": edges,

	"internal/ipc":     surface,
	"internal/httpd":   surface,
	"internal/studio":  surface,
	"internal/tui":     surface,
	"internal/config":  surface,
	"internal/logfile": surface,

	// What an author of loops begins with.
	"internal/scaffold": surface,

	"internal/daemon": roof,
	"internal/cli":    roof,
	"cmd/ombud":       roof,

	"internal/arch":            support,
	"internal/crashtest":       support,
	"internal/injection":       support,
	"internal/faults":          support,
	"internal/db/dbtest":       support,
	"internal/laws":            support,
	"internal/model/modeltest": support,

	"internal/signed/signedtest": support,

	// The APIs that coding agents call, and these agents themselves.
	"internal/harness/fakeapi": support,
	"internal/harness/real":    support,

	"internal/channel/channeltest":           support,
	"internal/channel/telegram/telegramtest": support,
	"internal/channel/slack/slacktest":       support,
	"internal/channel/discord/discordtest":   support,
	"internal/channel/whatsapp/whatsapptest": support,

	"bench":             support,
	"examples/*":        support,
	"examples/loops/*":  support,
	"sdk/loop/looptest": support,
}

// edge is an import within one floor. The edges of a floor form no cycle.
type edge struct{ from, to, why string }

var sameFloor = []edge{
	{"internal/channel/remote", "internal/channel", "who a sender is, is decided in one place"},
	{"internal/delegate", "internal/harness", "it books what a coding agent told"},
	{"internal/delegate", "internal/harness/child", "and has it started"},
	{"internal/delegate", "internal/harness/keyproxy", "and its key kept from it"},
	{"internal/mcp/asks", "internal/mcp/client", "it answers what the servers of that ask"},
	{"internal/harness/child", "internal/harness", "what a coding agent prints is read in one place"},
	{"internal/harness/child", "internal/harness/keyproxy", "it knows where each program's key is good, and how it is given"},
	{"internal/channel/telegram", "internal/channel", "it is an adapter of one network"},
	{"internal/channel/slack", "internal/channel", "it is an adapter of one network"},
	{"internal/channel/discord", "internal/channel", "it is an adapter of one network"},
	{"internal/channel/whatsapp", "internal/channel", "it is an adapter of one network"},
	{"internal/instance", "internal/fault", "errors have a class"},
	{"internal/label", "internal/fault", "errors have a class"},
	{"internal/redact", "internal/fault", "errors keep their class when a value is taken out"},
	{"internal/wire", "internal/fault", "errors have a class, and its code is on the wire"},
	{"internal/db", "internal/fault", "errors have a class"},
	{"internal/vault", "internal/fault", "errors have a class"},
	{"internal/blob", "internal/fault", "errors have a class"},
	{"internal/cron", "internal/fault", "errors have a class"},
	{"internal/db", "internal/failpoint", "a commit is a place where the crash campaign kills"},
	{"internal/db", "internal/id", "a process that wants to be the active node has a name of its own"},
	{"internal/vault", "internal/failpoint", "so is every write of a file that opens the store"},
	{"internal/vault", "internal/wholefile", "a new name of such a file has to survive a power cut"},
	{"internal/hold", "internal/fault", "errors have a class"},
	{"internal/hold", "internal/db", "the hold is a row"},
	{"internal/blob", "internal/db", "its pieces are rows"},
	{"internal/blob", "internal/vault", "its pieces are sealed"},
	{"internal/blob", "internal/id", "a blob has an id"},

	{"internal/eventlog", "internal/lease", "a subscription is read by the node that holds its lease"},

	{"internal/policy", "internal/scope", "a rule is a scope and an effect"},
	{"internal/grant", "internal/scope", "a grant is a scope and an effect"},
	{"internal/grant", "internal/policy", "what is granted is held in policy's terms, and weighed by asking it"},
	{"internal/guard", "internal/scope", "it checks what a scope's qualifier names"},
	{"internal/confine", "internal/scope", "a job's walls are made from its scopes"},
	{"internal/confine/first", "internal/confine", "it is its launcher"},
	{"internal/tool", "internal/policy", "a call says in which tier it is made"},
	{"internal/tool", "internal/scope", "a tool derives the scopes a call needs"},
	{"internal/approval", "internal/scope", "an approval shows the scopes it is for"},
	{"internal/approval", "internal/form", "and an answer fits the form it was asked with"},
	{"internal/form", "internal/guard", "its text is a stranger's"},
	{"internal/form", "internal/tool", "an answer is canonical as an input is"},

	{"internal/supervise", "internal/confine", "what it keeps running is a job"},
	{"internal/supervise", "internal/guard", "and what that says is others' text"},

	{"internal/act", "internal/run", "a call is a step of a run"},
	{"internal/schedule", "internal/run", "it asks whether what it started last is still at work"},
	{"internal/trigger", "internal/run", "what it starts is a run"},
	{"internal/trigger", "internal/schedule", "what starts at times is a schedule"},
	{"internal/outbox", "internal/run", "a delivery is a run"},
	{"internal/job", "internal/run", "a call of a job is a run"},
	{"internal/job", "internal/act", "and is made through the one door"},
	{"internal/outbox", "internal/act", "sending is an effect, and effects have one path"},

	{"internal/model/*", "internal/model", "a provider implements its interface"},
	{"internal/agent", "internal/model", "a turn asks a model"},
	{"internal/agent", "internal/memory", "a turn's context holds what is recalled"},

	{"internal/loops", "wasmloop", "the public format of a signed loop"},
	{"internal/recipe", "internal/loops", "a recipe is done with the kit of loops"},
	{"internal/signed", "internal/loops", "so is a signed loop"},
	{"internal/signed", "wasmloop", "it keeps and runs what that format says"},
	{"internal/signed", "wasmloop/abi", "it knows a recorded call by its words"},
	{"wasmloop", "wasmloop/abi", "a host answers in the words a guest asks in"},
	{"sdk/loop", "wasmloop/abi", "so does a guest ask"},
	{"internal/compat/*", "internal/recipe", "foreign recipes become ours"},
	{"internal/compat/*", "internal/loops", "foreign loops become ours"},
	{"internal/compat/*", "internal/workflow", "foreign workflows become ours"},
	{"internal/compat/*", "wasmloop", "what a foreign manifest says wrongly is told"},

	{"internal/cli", "internal/daemon", "ombud up runs one in this process"},
	{"cmd/ombud", "internal/cli", "main only hands over"},
}

// owned lists imports that only some packages may have. Tests and support
// packages are free, except where everywhere is set.
type ownedImport struct {
	path       string // the import, or with a final "/" everything under it
	by         []string
	why        string
	everywhere bool // tests too
}

var owned = []ownedImport{
	{path: "C", why: "what we ship is built without cgo", everywhere: true},
	{path: "unsafe", by: []string{"internal/confine", "sdk/loop"}, why: "only the system calls that hold a job are made by hand, and a guest hands its host pointers", everywhere: true},
	{path: "log", why: "slog is injected"},
	{path: "io/ioutil", why: "deprecated", everywhere: true},
	{path: "testing", why: "test code is not shipped"},
	{path: "pgregory.net/rapid", why: "test code is not shipped"},
	{path: "go.uber.org/goleak", why: "test code is not shipped"},
	{path: "modernc.org/sqlite", by: []string{"internal/db"}, why: "one door to the store"},
	{path: "github.com/jackc/", by: []string{"internal/db"}, why: "one door to the store"},
	{path: "github.com/pressly/goose/", by: []string{"internal/db"}, why: "one door to the store"},
	{path: "golang.org/x/crypto/chacha20poly1305", by: []string{"internal/vault"}, why: "sealing is in one place"},
	{path: "crypto/aes", by: []string{"internal/vault"}, why: "sealing is in one place"},
	{path: "crypto/cipher", by: []string{"internal/vault"}, why: "sealing is in one place"},
	{path: "crypto/hkdf", by: []string{"internal/vault"}, why: "keys are derived in one place"},
	{path: "golang.org/x/crypto/argon2", by: []string{"internal/vault"}, why: "passphrases are stretched in one place"},
	{path: "github.com/zalando/", by: []string{"internal/vault"}, why: "one door to the keyring"},
	{path: "github.com/godbus/", by: []string{"internal/vault"}, why: "one door to the keyring"},
	{path: "golang.org/x/term", by: []string{"internal/cli"}, why: "only the command line has a terminal"},
	{path: "github.com/santhosh-tekuri/jsonschema/", by: []string{"internal/tool"}, why: "schemas are checked in one place"},
	{path: "github.com/anthropics/", by: []string{"internal/model/anthropic"}, why: "a provider's types stay in its adapter"},
	{path: "github.com/sashabaranov/go-openai", by: []string{"internal/model/openai"}, why: "a provider's types stay in its adapter"},
	{path: "charm.land/catwalk/", by: []string{"internal/model"}, why: "prices are looked up in one place"},
	{path: "github.com/spf13/", by: []string{"internal/cli"}, why: "only the command line parses flags"},
	{path: "github.com/yuin/goldmark", by: []string{"internal/channel/markup"}, why: "Markdown is read in one place"},
	{path: "github.com/go-telegram/", by: []string{"internal/channel/telegram"}, why: "a network's types stay in its adapter"},
	{path: "github.com/bwmarrin/", by: []string{"internal/channel/discord"}, why: "a network's types stay in its adapter"},
	{path: "github.com/gorilla/websocket", by: []string{"internal/channel/discord", "internal/channel/slack"}, why: "only the libraries of networks speak WebSocket"},
	{path: "flag", why: "the command line is cobra's"},
	{path: module + "/internal/grant", by: []string{"internal/daemon"},
		why: "authority changes only through the operator's socket: no tool, agent or channel can name it"},
	{path: module + "/internal/pairing", by: []string{"internal/daemon", "internal/channel", "internal/channel/remote"},
		why: "who the operator is changes only through the operator's socket, and by a code that came from there"},
	{path: module + "/internal/channel/remote", by: []string{"internal/daemon"},
		why: "adapters are added and removed only through the operator's socket"},
	{path: "os/exec", by: []string{
		"internal/cli", "internal/confine", "internal/channel/whatsapp", "internal/tools/*", "internal/harness/*", "internal/connector/*", "internal/mcp/client",
	}, why: "a program started is an effect: it goes through act, or is the daemon itself"},
}

// pure packages decide from their input alone.
var pure = []string{"internal/fault", "internal/label", "internal/scope", "internal/policy", "internal/cron"}

// impure are the imports that would make them depend on more.
var impure = []string{
	"os", "net", "net/http", "io/fs", "database/sql", "crypto/rand", "math/rand", "math/rand/v2",
	module + "/internal/db", module + "/internal/instance",
}

// ownedUse lists functions and types that only some packages may name.
type ownedUse struct {
	pkg, name string // import path; name, or "*Env*"-like prefix pattern
	by        []string
	why       string
}

var ownedNames = []ownedUse{
	{"os", "Getenv", []string{"internal/config", "wasmloop"}, "configuration has one entrance, which records where a value came from; wasmloop is also a library, whose public functions promise to hear the environment"},
	{"os", "LookupEnv", []string{"internal/config"}, "configuration has one entrance"},
	{"os", "Environ", []string{"internal/config"}, "configuration has one entrance; a child's environment is an allow-list"},
	{"os", "ExpandEnv", []string{"internal/config"}, "configuration has one entrance"},
	{"os", "Setenv", nil, "the environment is shared by the whole process"},
	{"os", "UserHomeDir", []string{"internal/config", "wasmloop"}, "paths are built by instance, from what config hands it"},
	{"os", "Exit", []string{"cmd/ombud", "internal/confine/first", "sdk/loop"}, "everything else returns, so that what it owns is closed; a launcher of jobs ends where main is not yet, and a guest tells its host so that it failed"},
	{"time", "Sleep", nil, "it cannot be stopped: select on a timer and the context"},
	{module + "/internal/secret", "New", []string{"internal/daemon"}, "who can set a secret is wired in one place: tools and models are handed Resolve alone"},
	{module + "/internal/tool", "Invoker", []string{"internal/act", "internal/daemon"}, "only act reaches a tool's handler (law 4)"},
}

// stateAllowed lists the packages that may keep state in package variables.
var stateAllowed = map[string]string{
	"internal/id": "ids of one process never go back, whoever makes them",
	"sdk/loop":    "a guest is one loop, and the host calls its exports by name",
}

// maxUntyped bounds map[string]any in what we ship, all packages together but
// those of untypedAllowed. It is for borders with foreign JSON; a domain has types.
const maxUntyped = 20

var untypedAllowed = map[string]string{
	"internal/tool": "a JSON Schema is a document without a type of ours",
}
