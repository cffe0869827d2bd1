package whatsapp

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/markup"
	"github.com/ombud-run/ombud/internal/fault"
)

// The parts of a channel that speaks through Meta's Cloud API.
const (
	partToken  = "access_token"
	partApp    = "app_secret"
	partVerify = "verify_token"
	partPhone  = "phone_number_id"
	partURL    = "api_url"
)

const (
	graphURL   = "https://graph.facebook.com/v23.0"
	graphTime  = 30 * time.Second
	maxAnswer  = 256 << 10 // bytes of an answer of Meta's
	cloudEvery = 5 * time.Minute
)

// CloudKind is the kind of channel that speaks through Meta's WhatsApp Cloud API.
func CloudKind() channel.Kind {
	return channel.Kind{
		Name:  "whatsapp-cloud",
		About: "a WhatsApp business number, through Meta's Cloud API",
		Needs: []channel.Part{
			{Name: partPhone, About: "Phone number ID, from API Setup of the app (not the number itself)"},
			{Name: partToken, About: "access token of a system user, with whatsapp_business_messaging", Secret: true},
			{Name: partApp, About: "App secret, from Settings > Basic of the app: Meta signs its calls with it", Secret: true},
			{Name: partVerify, About: "a word of your own choice, which you also enter beside the webhook's address", Secret: true},
			{Name: partURL, About: "where the API is", Optional: true, Default: graphURL},
		},
		Make: func(s channel.Setup) (channel.Adapter, error) { return newCloud(s) },
	}
}

// cloud is the adapter of a business number.
type cloud struct {
	name   string // of the channel
	phone  string // its id
	api    string // without a slash at its end
	secret func(ctx context.Context, part string) (string, error)
	client *http.Client
	log    *slog.Logger
	last   memory[string] // the newest message of each chat, which typing is shown at
}

var (
	_ channel.Adapter = (*cloud)(nil)
	_ channel.Hooked  = (*cloud)(nil)
	_ channel.Typer   = (*cloud)(nil)
)

func newCloud(s channel.Setup) (*cloud, error) {
	phone := strings.TrimSpace(s.Values[partPhone])
	if phone == "" || len(phone) > 32 || digits(phone) != phone {
		return nil, fault.New(fault.Config, "phone_number_id is a number of up to 32 digits").
			WithHint("it stands beside the phone number in API Setup of the app; it is not the phone number")
	}
	api := strings.TrimRight(cmp.Or(strings.TrimSpace(s.Values[partURL]), graphURL), "/")
	u, err := url.Parse(api)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return nil, fault.New(fault.Config, "api_url is an address such as %s", graphURL)
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme != "https" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fault.New(fault.Config, "api_url begins with https: the access token goes there")
	}
	client, err := channel.Client(api, graphTime, maxAnswer)
	if err != nil {
		return nil, err
	}
	return &cloud{name: s.Name, phone: phone, api: api, secret: s.Secret, client: client, log: s.Logger}, nil
}

// Capabilities implements channel.Adapter.
func (c *cloud) Capabilities() channel.Capabilities {
	return channel.Capabilities{Buttons: true, Limit: limit}
}

// Render implements channel.Adapter.
func (c *cloud) Render(markdown string) []markup.Piece { return render(markdown) }

// HookPath implements channel.Hooked: Meta is told the address, so it needs no other.
func (c *cloud) HookPath() string { return "" }

// Check implements channel.Adapter.
func (c *cloud) Check(ctx context.Context) (channel.Me, error) {
	var number struct {
		ID      string `json:"id"`
		Display string `json:"display_phone_number"`
		Name    string `json:"verified_name"`
	}
	err := c.call(ctx, http.MethodGet, c.phone+"?fields=display_phone_number,verified_name", nil, &number)
	if err != nil {
		return channel.Me{}, asked(err)
	}
	n := digits(number.Display)
	if n == "" || len(n) > 32 {
		return channel.Me{}, fault.New(fault.Unavailable, "Meta's answer does not say the number")
	}
	return channel.Me{ID: c.phone, Name: cmp.Or(line(number.Name), "+"+n), IDs: []string{n}}, nil
}

// asked is the error of a question rather than of a message: a refused key is the
// operator's to mend, and all other doubt is only trouble.
func asked(err error) error {
	switch hint := fault.HintOf(err); {
	case isRefusedKey(err), fault.Is(err, fault.Denied):
		return fault.New(fault.Denied, "%w", err).WithHint("%s", hint)
	case fault.Is(err, fault.Unavailable):
		return err
	default:
		return fault.New(fault.Unavailable, "%w", err).WithHint("%s", hint)
	}
}

// Run implements channel.Adapter: Meta calls us, so what is left to do is to look whether
// the key is still good.
func (c *cloud) Run(ctx context.Context, in channel.Intake) error {
	defer c.client.CloseIdleConnections()
	me, err := c.Check(ctx)
	if err != nil {
		return err
	}
	in.Up(me)
	tick := time.NewTicker(cloudEvery)
	defer tick.Stop()
	for well := true; ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		me, err := c.Check(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case fault.Is(err, fault.Denied):
			return err
		case err != nil:
			well = false
			in.Down(err)
		case !well:
			well = true
			in.Up(me)
		}
	}
}
