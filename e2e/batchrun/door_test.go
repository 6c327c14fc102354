package batchrun

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/onefold-dev/onefold/e2e/proc"
)

// door is an address that stays while the api behind it goes and comes back
// under another one, as that of a load balancer does.
type door struct {
	net.Listener
	mu   sync.Mutex
	to   string
	open map[net.Conn]bool
}

func newDoor(t *testing.T) *door {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &door{Listener: l, open: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { d.pass(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		d.cut()
		all.Wait()
	})
	return d
}

func (d *door) url() string { return "http://" + d.Addr().String() }

// lead has new connections go to an api.
func (d *door) lead(t *testing.T, api *proc.Process) {
	t.Helper()
	u, err := url.Parse(api.URL())
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to = u.Host
}

func (d *door) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.open {
		_ = c.Close()
	}
}

func (d *door) pass(in net.Conn) {
	defer in.Close()
	d.mu.Lock()
	to := d.to
	d.mu.Unlock()
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	d.mu.Lock()
	d.open[in], d.open[out] = true, true
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.open, in)
		delete(d.open, out)
		d.mu.Unlock()
	}()
	done := make(chan struct{}, 2)
	for _, p := range [][2]net.Conn{{in, out}, {out, in}} {
		go func() {
			_, _ = io.Copy(p[0], p[1])
			_ = p[0].(*net.TCPConn).CloseWrite()
			done <- struct{}{}
		}()
	}
	<-done
	<-done
}
