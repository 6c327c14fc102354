package egress_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/internal/egress"
	"github.com/onefold-dev/onefold/internal/outbox/outboxtest"
)

// TestRefused: each sort of address with the words that say why.
func TestRefused(t *testing.T) {
	t.Parallel()
	for host, why := range map[string]string{
		"127.0.0.1":          "loopback",
		"localhost":          "loopback",
		"LOCALHOST.":         "loopback",
		"api.localhost":      "loopback",
		"::1":                "loopback",
		"0.0.0.0":            "unspecified",
		"::":                 "unspecified",
		"10.0.0.1":           "private",
		"172.31.255.255":     "private",
		"192.168.0.1":        "private",
		"fd00::1":            "private",
		"100.64.0.1":         "100.64.0.0/10",
		"169.254.169.254":    "link-local",
		"fe80::1":            "link-local",
		"fe80::1%eth0":       "link-local",
		"::ffff:127.0.0.1":   "IPv4 address written as IPv6",
		"::ffff:7f00:1":      "IPv4 address written as IPv6",
		"64:ff9b::a9fe:a9fe": "NAT64",
		"64:ff9b:1::a00:1":   "NAT64",
		"2002:7f00:1::":      "6to4",
		"2001:0:1::1":        "Teredo",
		"224.0.0.1":          "multicast",
		"198.18.0.1":         "special use",
		"192.0.0.1":          "special use",
		"255.255.255.255":    "special use",
		"127.1":              "number",
		"2130706433":         "number",
		"0x7f000001":         "number",
		"0177.0.0.1":         "number",
		"hook.example.0x7f":  "number",
	} {
		err := egress.New(false, nil).Check(t.Context(), host)
		b, ok := egress.IsBlocked(err)
		if !ok || !strings.Contains(b.Error(), why) {
			t.Errorf("%s: got %v, want it blocked with %q", host, err, why)
		}
		if ok && strings.Contains(b.Error(), host) && len(host) > 3 {
			t.Errorf("%s: the reason tells the address: %s", host, b)
		}
	}
}

// TestAllowPrivate opens loopback and private ranges, and nothing else.
func TestAllowPrivate(t *testing.T) {
	t.Parallel()
	g := egress.New(true, nil)
	for _, host := range []string{"127.0.0.1", "::1", "10.1.2.3", "192.168.1.1", "fd00::1", "100.64.0.1"} {
		if err := g.Check(t.Context(), host); err != nil {
			t.Errorf("%s: got %v, want it allowed", host, err)
		}
	}
	for _, host := range []string{"169.254.169.254", "fe80::1", "64:ff9b::a9fe:a9fe", "0.0.0.0", "127.1", "::ffff:169.254.169.254"} {
		err := g.Check(t.Context(), host)
		if b, ok := egress.IsBlocked(err); !ok || b.Private || strings.Contains(b.Error(), "allow_private") {
			t.Errorf("%s: got %v, want it blocked for good", host, err)
		}
	}
	if err := egress.New(false, nil).Check(t.Context(), "93.184.216.34"); err != nil {
		t.Errorf("a public address: got %v", err)
	}
}

// TestNamesThatLead answers names from a server of its own: a mixed answer, and one that changes between two looks.
func TestNamesThatLead(t *testing.T) {
	t.Parallel()
	for name, lists := range map[string][][][4]byte{
		"public and private": {{{93, 184, 216, 34}, {10, 0, 0, 5}}},
		"private":            {{{192, 168, 1, 1}}},
		"metadata":           {{{169, 254, 169, 254}}},
		"changed in between": {{{93, 184, 216, 34}}, {{127, 0, 0, 1}}},
	} {
		conn, err := egress.New(false, outboxtest.Resolver(t, lists...)).Dial(t.Context(), "tcp", "hook.test:80")
		if _, ok := egress.IsBlocked(err); !ok {
			t.Errorf("%s: got %v, %v, want blocked", name, conn, err)
		}
	}
}

// TestUnknownNameIsNotBlocked: a name that cannot be looked up is another matter.
func TestUnknownNameIsNotBlocked(t *testing.T) {
	t.Parallel()
	away := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }}
	err := egress.New(false, away).Check(t.Context(), "hook.test")
	if _, ok := egress.IsBlocked(err); err == nil || ok {
		t.Errorf("got %v, want an error that is no block", err)
	}
}
