package apid

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// lookEvery is how often a handshake looks whether the files have changed.
const lookEvery = time.Second

// certificate is the server's certificate from two files, which are read again
// once they have changed: a renewed one needs no restart. While what is there
// cannot be used, the one before is.
type certificate struct {
	cert, key string
	log       *slog.Logger

	mu     sync.Mutex
	loaded *tls.Certificate
	stamp  string // of the files as they were last read
	looked time.Time
}

// newCertificate reads the files; an error names what cannot be used.
func newCertificate(cert, key string, log *slog.Logger) (*certificate, error) {
	c := &certificate{cert: cert, key: key, log: log}
	stamp, err := c.stamped()
	if err != nil {
		return nil, fmt.Errorf("read the TLS certificate: %w", err)
	}
	loaded, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read the TLS certificate: %w", err)
	}
	c.loaded, c.stamp, c.looked = &loaded, stamp, time.Now()
	return c, nil
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current(time.Now()), nil },
	}
}

// current is the certificate as the files have it, as of a second ago.
func (c *certificate) current(now time.Time) *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.looked) < lookEvery {
		return c.loaded
	}
	c.looked = now
	stamp, err := c.stamped()
	if err != nil || stamp == c.stamp {
		return c.loaded // a file that is away is about to be replaced
	}
	c.stamp = stamp // said once for each state of the files
	loaded, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		c.log.Warn("TLS certificate changed and cannot be used; the one before still is", "error", err, "file", c.cert)
		return c.loaded
	}
	c.loaded = &loaded
	c.log.Info("TLS certificate read again", "file", c.cert)
	return c.loaded
}

func (c *certificate) stamped() (string, error) {
	out := ""
	for _, name := range []string{c.cert, c.key} {
		info, err := os.Stat(name)
		if err != nil {
			return "", err
		}
		out += fmt.Sprint(info.ModTime().UnixNano(), info.Size(), " ")
	}
	return out, nil
}
