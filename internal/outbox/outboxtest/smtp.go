package outboxtest

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"io"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"strings"
	"sync"
	"testing"
)

// Mail is one mail as a server took it.
type Mail struct {
	From string
	To   []string
	Raw  string // with CRLF
	// Header and Text are what a mail program would show.
	Header  mail.Header
	Subject string
	Text    string
}

// MailServer is an SMTP server on loopback.
type MailServer struct {
	*Receiver
	// TLS, where set before Start, is offered with STARTTLS.
	TLS *tls.Config
	// User and Password, where set, must log in.
	User, Password string
	// Say answers a command ("RCPT", "DATA", "." for the message's end, ...) with a line of its own; "" is the usual.
	Say func(command, line string) string
	// Implicit speaks TLS from the first byte.
	Implicit bool

	mu    sync.Mutex
	mails []Mail
}

// StartMail starts a mail server that behaves as told.
func StartMail(t *testing.T, b Behaviour, s *MailServer) *MailServer {
	t.Helper()
	s.Receiver = NewReceiver()
	if b == Dead {
		s.URL = "smtp://" + deadAddress(t)
		return s
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.URL = "smtp://" + l.Addr().String()
	if s.Implicit {
		s.URL = "smtps://" + l.Addr().String()
	}
	over := make(chan struct{})
	var talks sync.WaitGroup
	t.Cleanup(func() {
		close(over)
		_ = l.Close()
		talks.Wait()
	})
	talks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			talks.Go(func() {
				defer c.Close()
				go func() { <-over; _ = c.Close() }()
				(&smtpTalk{server: s, b: b, over: over}).serve(c)
			})
		}
	})
	return s
}

// Mails returns what was taken so far.
func (s *MailServer) Mails() []Mail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Mail(nil), s.mails...)
}

type smtpTalk struct {
	server *MailServer
	b      Behaviour
	over   <-chan struct{}

	conn   net.Conn
	in     *bufio.Reader
	secure bool
	known  bool
	mail   Mail
}

func (t *smtpTalk) serve(c net.Conn) {
	if t.server.Implicit {
		c, t.secure = tls.Server(c, t.server.TLS), true
	}
	t.conn, t.in = c, bufio.NewReader(c)
	t.say("220 mail.test ready")
	for {
		line, err := t.in.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		command := strings.ToUpper(strings.SplitN(line, " ", 2)[0])
		if t.server.Say != nil {
			if own := t.server.Say(command, line); own != "" {
				t.say(own)
				continue
			}
		}
		if !t.command(command, line) {
			return
		}
	}
}

func (t *smtpTalk) say(line string) { _, _ = io.WriteString(t.conn, line+"\r\n") }

func (t *smtpTalk) command(command, line string) (on bool) {
	s := t.server
	switch command {
	case "EHLO":
		lines := []string{"250-mail.test"}
		if s.TLS != nil && !t.secure {
			lines = append(lines, "250-STARTTLS")
		}
		if s.User != "" {
			lines = append(lines, "250-AUTH PLAIN")
		}
		t.say(strings.Join(append(lines, "250 8BITMIME"), "\r\n"))
	case "STARTTLS":
		t.say("220 go on")
		secured := tls.Server(t.conn, s.TLS)
		t.conn, t.in, t.secure = secured, bufio.NewReader(secured), true
	case "AUTH":
		want := base64.StdEncoding.EncodeToString([]byte("\x00" + s.User + "\x00" + s.Password))
		if t.known = line == "AUTH PLAIN "+want; !t.known {
			t.say("535 5.7.8 wrong")
			return true
		}
		t.say("235 welcome")
	case "MAIL":
		if s.User != "" && !t.known {
			t.say("530 5.7.0 log in first")
			return true
		}
		t.mail = Mail{From: line}
		t.say("250 ok")
	case "RCPT":
		t.mail.To = append(t.mail.To, line)
		t.say("250 ok")
	case "DATA":
		t.say("354 go on")
		return t.data()
	case "QUIT":
		t.say("221 bye")
		return false
	default:
		t.say("250 ok")
	}
	return true
}

func (t *smtpTalk) data() (on bool) {
	var b strings.Builder
	for {
		line, err := t.in.ReadString('\n')
		if err != nil {
			return false
		}
		if line == ".\r\n" {
			break
		}
		b.WriteString(strings.TrimPrefix(line, "."))
	}
	t.mail.Raw = b.String()
	t.server.take(t.mail)
	return t.behave()
}

func (t *smtpTalk) behave() (on bool) {
	if s := t.server; s.Say != nil {
		if own := s.Say(".", ""); own != "" {
			t.say(own)
			return true
		}
	}
	switch t.b {
	case Accept:
		t.say("250 queued")
	case Refuse:
		t.say("554 5.7.1 not wanted")
	case Fail:
		t.say("451 4.3.0 later")
	case Hang:
		<-t.over
	case Reset:
		return false
	case Shout:
		for {
			if _, err := io.WriteString(t.conn, "554-"+strings.Repeat("no ", 1000)+"\r\n"); err != nil {
				return false
			}
		}
	}
	return true
}

func (s *MailServer) take(m Mail) {
	got := Received{}
	if parsed, err := mail.ReadMessage(strings.NewReader(m.Raw)); err == nil {
		m.Header = parsed.Header
		m.Subject, _ = new(mime.WordDecoder).DecodeHeader(parsed.Header.Get("Subject"))
		text, _ := io.ReadAll(quotedprintable.NewReader(parsed.Body))
		m.Text = strings.ReplaceAll(string(text), "\r\n", "\n")
		got.ID, _, _ = strings.Cut(strings.Trim(parsed.Header.Get("Message-ID"), "<>"), "@")
		got.Body = []byte(m.Text)
	}
	s.mu.Lock()
	s.mails = append(s.mails, m)
	s.mu.Unlock()
	s.Take(got)
}
