package providertest

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// GoAway is an HTTP/2 server that says goodbye to each connection with its first call accepted, waits until the client
// has shown that it read that, and then answers the call.
type GoAway struct {
	*Server
	Calls    atomic.Int64 // requests read whole
	Answered atomic.Int64 // after the client had read the goodbye
}

// ServeGoAway starts a GoAway that answers with a JSON document.
func ServeGoAway(t *testing.T, config *tls.Config, document string) *GoAway {
	t.Helper()
	g := &GoAway{}
	config = config.Clone()
	config.NextProtos = []string{"h2"}
	g.Server = Serve(t, config, func(c *Conn) {
		if err := g.play(c, document); err != nil {
			t.Errorf("goodbye: %v", err)
		}
	})
	return g
}

// proof is what the client sends back, in its turn: it has read all that came before.
var proof = [8]byte{'g', 'o', 'o', 'd', 'b', 'y', 'e', '!'}

func (g *GoAway) play(c *Conn, document string) error {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c.r, preface); err != nil {
		return nil // a connection that was not needed
	}
	f := http2.NewFramer(c.Conn, c.r)
	if err := f.WriteSettings(); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return nil // the client has left
		}
		stream := frame.Header().StreamID
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = f.WriteSettingsAck()
			}
		case *http2.DataFrame:
			if !frame.StreamEnded() {
				continue
			}
			g.Calls.Add(1)
			if err = f.WriteGoAway(stream, http2.ErrCodeNo, nil); err == nil {
				err = f.WritePing(false, proof)
			}
		case *http2.PingFrame:
			if frame.IsAck() && frame.Data == proof {
				g.Answered.Add(1)
				err = reply(f, document)
			} else if !frame.IsAck() {
				err = f.WritePing(true, frame.Data)
			}
		}
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
}

// reply answers the one call of a connection.
func reply(f *http2.Framer, document string) error {
	const stream = 1
	var head bytes.Buffer
	e := hpack.NewEncoder(&head)
	for _, field := range []hpack.HeaderField{
		{Name: ":status", Value: "200"},
		{Name: "content-type", Value: "application/json"},
		{Name: "content-length", Value: fmt.Sprint(len(document))},
	} {
		if err := e.WriteField(field); err != nil {
			return err
		}
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head.Bytes(), EndHeaders: true}); err != nil {
		return err
	}
	return f.WriteData(stream, true, []byte(document))
}

// Certificate is a certificate for the loopback address, and itself in PEM for those who are to trust it.
func Certificate(t *testing.T) (config *tls.Config, pem []byte) {
	t.Helper()
	config = certificate(t)
	return config, pemOf(config.Certificates[0].Certificate[0])
}
