package webhook

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"

	"code.dny.dev/ssrf"
)

// private are the ranges that allow_private opens: loopback and the private networks of RFC 1918, RFC 6598 and RFC
// 4193. Link-local addresses, where cloud machines find their credentials, stay closed.
var (
	private4 = []netip.Prefix{
		netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("100.64.0.0/10"),
	}
	private6 = []netip.Prefix{netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("fc00::/7")}
)

// errNumeric refuses names that some resolvers take for an address (127.1, 2130706433, 0x7f000001).
var errNumeric = errors.New("the host is a number, but no address")

// guard decides which addresses may be dialled. It looks at every address of a name before the first is tried, and
// again at the one that is dialled, so that neither a mixed answer nor one that changes in between gets through.
type guard struct {
	*ssrf.Guardian
	dialer   *net.Dialer
	resolver *net.Resolver
}

func newGuard(allowPrivate bool, resolver *net.Resolver) *guard {
	options := []ssrf.Option{ssrf.WithAnyPort()}
	if allowPrivate {
		options = append(options, ssrf.WithAllowedV4Prefixes(private4...), ssrf.WithAllowedV6Prefixes(private6...))
	}
	g := &guard{Guardian: ssrf.New(options...), resolver: resolver}
	if resolver == nil {
		g.resolver = net.DefaultResolver
	}
	g.dialer = &net.Dialer{Timeout: dialLimit, Control: g.Safe, Resolver: g.resolver}
	return g
}

func (g *guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err != nil {
		if err := g.checkName(ctx, host, port); err != nil {
			return nil, err
		}
	}
	return g.dialer.DialContext(ctx, network, address)
}

func (g *guard) checkName(ctx context.Context, host, port string) error {
	if numeric(host) {
		return errNumeric
	}
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	all, err := g.resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return err
	}
	for _, ip := range all {
		network := "tcp6"
		if ip.Is4() || ip.Is4In6() {
			network = "tcp4"
		}
		if err := g.Safe(network, net.JoinHostPort(ip.Unmap().String(), port), nil); err != nil {
			return err
		}
	}
	return nil
}

// numeric reports whether the last label of a name is a number, which makes the whole an IPv4 address to some.
func numeric(host string) bool {
	host = strings.TrimSuffix(host, ".")
	last := strings.ToLower(host[strings.LastIndexByte(host, '.')+1:])
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}

func blocked(err error) bool {
	for _, target := range []error{
		ssrf.ErrProhibitedIP, ssrf.ErrProhibitedNetwork, ssrf.ErrProhibitedPort, ssrf.ErrInvalidHostPort, errNumeric,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
