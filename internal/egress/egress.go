// Package egress decides which addresses a connection to a receiver may be made to.
//
// A name is judged by what it resolves to, every address of it before the first is tried, and again at the address that
// is dialled: neither a mixed answer nor one that changes in between gets through. Loopback and the private ranges open
// where a destination allows them; link-local addresses, where cloud machines find their credentials, never do.
package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// DialLimit is how long resolving and dialling may take.
const DialLimit = 5 * time.Second

// private are the ranges that allow_private opens: loopback and the private networks of RFC 1918, RFC 6598 and RFC
// 4193.
var (
	private4 = []netip.Prefix{
		netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("100.64.0.0/10"),
	}
	private6 = []netip.Prefix{netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("fc00::/7")}
)

// Blocked says that an address may not be dialled. Range is the sort of address in words; the address itself stays out,
// for what a name resolves to inside a network is no news for whoever reads the error.
type Blocked struct {
	Range string
	// Private says that allow_private would open it.
	Private bool
}

func (b *Blocked) Error() string {
	if b.Private {
		return "the address is " + b.Range + "; allow_private: true opens loopback and private ranges"
	}
	return "the address is " + b.Range + ", which no destination may have"
}

// ranges names what the guard refuses. The first that holds the address counts.
var ranges = []struct {
	prefix  netip.Prefix
	name    string
	private bool
}{
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback address", true},
	{netip.MustParsePrefix("::1/128"), "a loopback address", true},
	{netip.MustParsePrefix("10.0.0.0/8"), "in a private range", true},
	{netip.MustParsePrefix("172.16.0.0/12"), "in a private range", true},
	{netip.MustParsePrefix("192.168.0.0/16"), "in a private range", true},
	{netip.MustParsePrefix("fc00::/7"), "in a private range", true},
	{netip.MustParsePrefix("100.64.0.0/10"), "in the range shared behind carriers (100.64.0.0/10)", true},
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local address, where cloud machines find their credentials", false},
	{netip.MustParsePrefix("fe80::/10"), "a link-local address, where cloud machines find their credentials", false},
	{netip.MustParsePrefix("0.0.0.0/8"), "an unspecified address", false},
	{netip.MustParsePrefix("::/128"), "an unspecified address", false},
	{netip.MustParsePrefix("::ffff:0:0/96"), "an IPv4 address written as IPv6", false},
	{netip.MustParsePrefix("64:ff9b::/96"), "an IPv4 address behind a translator (NAT64)", false},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "an IPv4 address behind a translator (NAT64)", false},
	{netip.MustParsePrefix("2002::/16"), "an IPv4 address inside IPv6 (6to4)", false},
	{netip.MustParsePrefix("2001::/32"), "an IPv4 address inside IPv6 (Teredo)", false},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address", false},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address", false},
}

func newBlocked(ip netip.Addr) *Blocked {
	ip = ip.WithZone("")
	for _, r := range ranges {
		if r.prefix.Contains(ip) {
			return &Blocked{Range: r.name, Private: r.private}
		}
	}
	return &Blocked{Range: "in a range for special use"}
}

// errNumeric refuses names that some resolvers take for an address (127.1, 2130706433, 0x7f000001).
var errNumeric = &Blocked{Range: "a number that is no whole IP address"}

// Guard judges addresses and dials those that may be dialled. It is safe for concurrent use.
type Guard struct {
	judge        *ssrf.Guardian
	allowPrivate bool
	resolver     *net.Resolver
	dialer       *net.Dialer
}

// New makes a guard. A nil resolver means the system's.
func New(allowPrivate bool, resolver *net.Resolver) *Guard {
	options := []ssrf.Option{ssrf.WithAnyPort()}
	if allowPrivate {
		options = append(options, ssrf.WithAllowedV4Prefixes(private4...), ssrf.WithAllowedV6Prefixes(private6...))
	}
	g := &Guard{judge: ssrf.New(options...), allowPrivate: allowPrivate, resolver: resolver}
	if resolver == nil {
		g.resolver = net.DefaultResolver
	}
	g.dialer = &net.Dialer{Timeout: DialLimit, Control: g.control, Resolver: g.resolver}
	return g
}

// control is the last word: it sees the address that is dialled, whatever was looked up before.
func (g *Guard) control(network, address string, c syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return &Blocked{Range: "not an IP address and port"}
	}
	if g.judge.Safe(network, address, c) != nil {
		return g.blocked(to.Addr())
	}
	return nil
}

func (g *Guard) blocked(ip netip.Addr) *Blocked {
	b := newBlocked(ip)
	b.Private = b.Private && !g.allowPrivate
	return b
}

// Dial connects to address, a host and a port. The error is or wraps *Blocked where the address may not be dialled.
func (g *Guard) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, &Blocked{Range: "not a host and port"}
	}
	if err := g.Check(ctx, host); err != nil {
		return nil, err
	}
	return g.dialer.DialContext(ctx, network, address)
}

// Check says whether host, a name or an IP address, leads only to addresses that may be dialled. A name is looked up;
// an error that is no *Blocked means that this failed.
func (g *Guard) Check(ctx context.Context, host string) error {
	if b, known := g.CheckLiteral(host); known {
		if b != nil {
			return b
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, DialLimit)
	defer cancel()
	all, err := g.resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return fmt.Errorf("look the host up: %w", err)
	}
	for _, ip := range all {
		if ip = ip.Unmap(); g.judge.SafeAddr(ip) != nil {
			return g.blocked(ip)
		}
	}
	return nil
}

// CheckLiteral judges what needs no lookup: an IP address, localhost, or a number that some take for an address. known
// is false for any other name.
func (g *Guard) CheckLiteral(host string) (b *Blocked, known bool) {
	if ip, err := netip.ParseAddr(host); err == nil {
		if g.judge.SafeAddr(ip) != nil {
			return g.blocked(ip), true
		}
		return nil, true
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	switch {
	case numeric(name):
		return errNumeric, true
	case (name == "localhost" || strings.HasSuffix(name, ".localhost")) && !g.allowPrivate:
		return &Blocked{Range: "a loopback address", Private: true}, true
	}
	return nil, false
}

// numeric reports whether the last label of a name is a number, which makes the whole an IPv4 address to some.
func numeric(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}

// IsBlocked returns the *Blocked that err is or wraps.
func IsBlocked(err error) (*Blocked, bool) {
	var b *Blocked
	ok := errors.As(err, &b)
	return b, ok
}
