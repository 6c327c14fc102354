package outboxtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"
)

// Resolver answers questions for A records from a name server of its own on loopback: the n-th question with the n-th
// list of addresses, later ones with the last. Every other question gets an empty answer.
func Resolver(t *testing.T, lists ...[][4]byte) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	var asked atomic.Int32
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			question := buf[12:n]
			question = question[:bytes.IndexByte(question, 0)+5] // name, type, class
			var addresses [][4]byte
			if binary.BigEndian.Uint16(question[len(question)-4:]) == 1 {
				addresses = lists[min(int(asked.Add(1)), len(lists))-1]
			}
			_, _ = server.WriteTo(answer(buf[:2], question, addresses), from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// answer is a DNS message (RFC 1035, section 4) with one A record for each address.
func answer(id, question []byte, addresses [][4]byte) []byte {
	m := append([]byte{}, id...)
	m = append(m, 0x81, 0x80, 0, 1, 0, byte(len(addresses)), 0, 0, 0, 0)
	m = append(m, question...)
	for _, a := range addresses {
		m = append(m, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4) // the name above, A, IN, TTL 0, four bytes
		m = append(m, a[:]...)
	}
	return m
}
