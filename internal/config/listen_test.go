package config

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestAListenerOthersCanReachNeedsATokenAndTLS(t *testing.T) {
	t.Parallel()
	const secured = "listen:\n  address: 0.0.0.0:443\n  admin_token: secret:admin\n"
	for text, want := range map[string][]string{
		"listen: {address: off}\n":                                    nil,
		"listen: {address: 'localhost:80'}\n":                         nil,
		"listen: {address: '[::1]:80', hosts: [hooks.example.com]}\n": nil,
		secured + "  behind_proxy: true\n":                            nil,
		secured + "  tls_cert: /etc/c.pem\n  tls_key: /etc/k.pem\n":   nil,
		secured: {"c.yaml:2:12: listen.address: 0.0.0.0:443 can be reached from other machines: that needs listen.tls_cert"},
		"listen: {address: '192.168.1.2:80', behind_proxy: true}\n": {"c.yaml:1:19: listen.address: 192.168.1.2:80 can be reached from other machines: that needs listen.admin_token"},
		"listen: {address: '[::ffff:10.0.0.1]:80'}\n":               {"listen.admin_token", "listen.tls_cert"},
		"listen: {address: example.com:80}\n":                       {"c.yaml:1:19: listen.address: is neither off nor an address"},
		"listen: {address: ':7331'}\n":                              {"is neither off nor an address"},
		"listen: {address: 127.0.0.1}\n":                            {"is neither off nor an address"},
		"listen: {address: '127.0.0.1:70000'}\n":                    {"is neither off nor an address"},
		"listen: {address: '[fe80::1%eth0]:1'}\n":                   {"is neither off nor an address"},
		"listen: {address: '[::ffff:127.0.0.1]:80'}\n":              nil,
		"listen: {address: '127.9.9.9:80'}\n":                       nil,
		"listen: {address: '[::]:80', tls_cert: /c, tls_key: /k}\n": {"listen.admin_token"},
		"listen: {address: of}\n":                                   {"off"},
		"listen: {hosts: [https://x.example]}\n":                    {"is not the name of a host"},
		"listen: {tls_cert: /etc/c.pem}\n":                          {"c.yaml:1:20: listen.tls_cert: it needs listen.tls_key beside it"},
		"listen: {admin_token: sesame}\n":                           {"is not secret:NAME"},
	} {
		_, err := load(text, Input{})
		if (err == nil) != (want == nil) {
			t.Errorf("%q: %v", text, err)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "sesame") {
				t.Errorf("%q: want %q, got %v", text, part, err)
			}
		}
	}
}

func TestItIsKnownWhetherTheListenerWasChosen(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"": false, "listen: {address: '127.0.0.1:7331'}\n": true, "listen: {hosts: [a.example]}\n": true, "turn: {steps: 3}\n": false} {
		l, err := load(text, Input{})
		if err != nil || l.Wrote("listen") != want {
			t.Errorf("%q: %v, %v", text, l.Wrote("listen"), err)
		}
		if !slices.Equal(l.Config.Listen.Hosts, []string{"a.example"}) && !reflect.DeepEqual(l.Config.Listen, Listen{Address: netip.MustParseAddrPort(DefaultListen), Hosts: []string{}}) {
			t.Errorf("%q: %+v", text, l.Config.Listen)
		}
	}
}
