// Package email decides how an effect travels as a mail: one message, the same bytes at every try, its Message-ID made
// of the effect's id, so that a mail that comes twice is known as one.
package email

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	nethttp "net/http"
	"net/mail"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/egress"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/outbox/wire"
)

// The codes of mails that were not sent, besides those of package outbox.
const (
	CodeMessage  = "invalid_message"
	CodeDeferred = "put_off"
)

// Opts tunes a Sender. The zero value works.
type Opts struct {
	// Agent names this program in the header User-Agent. Default "onefold".
	Agent string
	// TLS is the client's configuration. Nil means the system's roots. Certificates are always verified.
	TLS *tls.Config
	// Resolver looks names up. Nil means the system's.
	Resolver *net.Resolver
	// Hello is the name this program greets with. Default the machine's.
	Hello string
}

// Sender delivers mails over SMTP, each over a connection of its own. It is safe for use by many goroutines.
type Sender struct {
	o      Opts
	guards map[bool]*egress.Guard
}

// New makes a Sender.
func New(o *Opts) *Sender {
	s := &Sender{guards: map[bool]*egress.Guard{}}
	if o != nil {
		s.o = *o
	}
	if s.o.Agent == "" {
		s.o.Agent = "onefold"
	}
	for _, private := range []bool{false, true} {
		s.guards[private] = egress.New(private, s.o.Resolver)
	}
	return s
}

// Send makes one try. What the server answers to the end of the message decides; a connection that breaks before that
// end has sent nothing, for a server acts on whole messages only.
func (s *Sender) Send(ctx context.Context, d outbox.Delivery) outbox.Outcome {
	if d.Check {
		return outbox.Outcome{Class: outbox.Blocked, Code: outbox.CodeBadURL, Message: "a mail server cannot be asked whether a mail arrived"}
	}
	m, err := s.message(d)
	if err != nil {
		return outbox.Outcome{Class: outbox.Answered, Like: nethttp.StatusBadRequest, Code: CodeMessage, Message: err.Error()}
	}
	t, refused := s.dial(ctx, d)
	if refused != nil {
		return *refused
	}
	defer t.conn.Close() //nolint:errcheck // whatever is said at the end changes nothing
	defer context.AfterFunc(ctx, func() { _ = t.conn.Close() })()
	c, err := t.begin(d, s.o.Hello)
	if err != nil {
		return t.notReady(err)
	}
	return m.send(c)
}

// talk is one connection to a mail server.
type talk struct {
	conn     net.Conn
	host     string
	tls      *tls.Config
	implicit bool // TLS from the first byte
	securing bool // the TLS handshake began
}

// address is what a destination's URL says: smtp://host:587 (STARTTLS) or smtps://host:465.
func address(d outbox.Delivery) (host, port string, implicit bool, err error) {
	u, err := url.Parse(d.URL.Reveal())
	if err != nil || u.Scheme != "smtp" && u.Scheme != "smtps" || u.Hostname() == "" {
		return "", "", false, errors.New("the destination's address is not smtp://host:port or smtps://host:port")
	}
	port = u.Port()
	switch {
	case port == "" && u.Scheme == "smtps":
		port = "465"
	case port == "":
		port = "587"
	}
	return u.Hostname(), port, u.Scheme == "smtps", nil
}

func (s *Sender) dial(ctx context.Context, d outbox.Delivery) (*talk, *outbox.Outcome) {
	host, port, implicit, err := address(d)
	if err != nil {
		return nil, &outbox.Outcome{Class: outbox.Blocked, Code: outbox.CodeBadURL, Message: err.Error()}
	}
	t := &talk{host: host, implicit: implicit, tls: &tls.Config{MinVersion: tls.VersionTLS12}}
	if s.o.TLS != nil {
		t.tls = s.o.TLS.Clone()
	}
	if t.tls.ServerName == "" {
		t.tls.ServerName = host
	}
	conn, err := s.guards[d.AllowPrivate].Dial(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		out := wire.NotConnected(err, false)
		return nil, &out
	}
	t.conn = &bounded{Conn: conn, left: maxRead}
	return t, nil
}

// maxRead bounds what a server may say in one talk, in bytes, certificates included: answers have many lines without end
// otherwise.
const maxRead = 256 << 10

type bounded struct {
	net.Conn
	left int
}

var errEndless = errors.New("the server said too much")

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errEndless
	}
	n, err := b.Conn.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

var (
	errNoTLS  = errors.New("the mail server offers no STARTTLS")
	errNoAuth = errors.New("the mail server offers no way to log in that can be used")
)

// begin greets, secures and logs in.
func (t *talk) begin(d outbox.Delivery, hello string) (*smtp.Client, error) {
	conn := t.conn
	if t.implicit {
		t.securing = true
		conn = tls.Client(conn, t.tls)
	}
	c, err := smtp.NewClient(conn, t.host)
	if err != nil {
		return nil, err
	}
	t.securing = false
	if hello != "" {
		if err := c.Hello(hello); err != nil {
			return nil, err
		}
	}
	if !t.implicit && !d.Plaintext {
		if ok, _ := c.Extension("STARTTLS"); !ok {
			return nil, errNoTLS
		}
		t.securing = true
		if err := c.StartTLS(t.tls); err != nil {
			return nil, err
		}
		t.securing = false
	}
	if d.Credential.Empty() {
		return c, nil
	}
	auth := t.auth(c, d)
	if auth == nil {
		return nil, errNoAuth
	}
	return c, c.Auth(auth)
}

// auth is the best way to log in that the server offers.
func (t *talk) auth(c *smtp.Client, d outbox.Delivery) smtp.Auth {
	_, offered := c.Extension("AUTH")
	ways := strings.Fields(offered)
	user, password := d.User, d.Credential.Reveal()
	switch {
	case slices.Contains(ways, "SCRAM-SHA-256"):
		return smtp.ScramSHA256Auth(user, password)
	case slices.Contains(ways, "PLAIN"):
		return smtp.PlainAuth("", user, password, t.host, d.Plaintext)
	case slices.Contains(ways, "LOGIN"):
		return smtp.LoginAuth(user, password, t.host, d.Plaintext)
	}
	return nil
}

// notReady classes what went wrong before the message: nothing of it was sent.
func (t *talk) notReady(err error) outbox.Outcome {
	var said *textproto.Error
	switch {
	case errors.Is(err, errNoAuth):
		return outbox.Outcome{Class: outbox.Answered, Like: nethttp.StatusUnauthorized, Code: string(api.CodeUnauthorized), Message: err.Error()}
	case errors.Is(err, errNoTLS):
		return outbox.Outcome{Class: outbox.NotSent, Code: outbox.CodeTLS, Message: err.Error()}
	case errors.As(err, &said) && noEntry(said.Code):
		return answer(said)
	case errors.As(err, &said):
		return outbox.Outcome{Class: outbox.NotSent, Code: CodeDeferred, Message: "the mail server takes no mails now (" + strconv.Itoa(said.Code) + ")"}
	}
	return wire.NotConnected(err, t.securing)
}

// noEntry are the codes of a credential that is missing, wrong or too weak (RFC 4954).
func noEntry(code int) bool { return code >= 530 && code <= 538 }

// answer is what a refusal of the server means. 5yz is for good, of the credential where it says so; 4yz is for now.
// Either way nothing was accepted.
func answer(said *textproto.Error) outbox.Outcome {
	reply := []byte(said.Msg)
	switch {
	case noEntry(said.Code):
		return outbox.Outcome{Class: outbox.Answered, Status: said.Code, Like: nethttp.StatusUnauthorized, Reply: reply}
	case said.Code >= 500:
		return outbox.Outcome{Class: outbox.Answered, Status: said.Code, Like: nethttp.StatusBadRequest, Reply: reply}
	}
	return outbox.Outcome{
		Class: outbox.NotSent, Code: CodeDeferred, Message: "the mail server put the mail off (" + strconv.Itoa(said.Code) + ")", Reply: reply,
	}
}

// message is a mail as it is sent: every byte of it is fixed by the effect.
type message struct {
	from string
	to   []string
	data []byte
}

func (s *Sender) message(d outbox.Delivery) (*message, error) {
	from, err := mail.ParseAddress(d.From)
	if err != nil {
		return nil, errors.New("the destination's from is no mail address")
	}
	to, err := mail.ParseAddressList(d.Headers["To"])
	if err != nil {
		return nil, errors.New("to is no list of mail addresses")
	}
	m := gomail.NewMsg(gomail.WithEncoding(gomail.EncodingQP), gomail.WithNoDefaultUserAgent())
	m.FromMailAddress(from)
	m.ToMailAddress(to...)
	m.Subject(d.Headers["Subject"])
	m.SetDateWithValue(d.CreatedAt.UTC().Truncate(time.Second))
	_, domain, _ := strings.Cut(from.Address, "@")
	m.SetMessageIDWithValue(d.ID.String() + "@" + domain)
	m.SetGenHeader("User-Agent", s.o.Agent)
	kind := gomail.TypeTextPlain
	for name, value := range d.Headers {
		switch name {
		case "To", "Subject":
		case "Content-Type":
			if strings.HasPrefix(strings.ToLower(value), string(gomail.TypeTextHTML)) {
				kind = gomail.TypeTextHTML
			}
		default:
			m.SetGenHeader(gomail.Header(name), value)
		}
	}
	m.SetBodyString(kind, string(d.Body))
	made := &message{from: from.Address}
	for _, a := range to {
		made.to = append(made.to, a.Address)
	}
	var b bytes.Buffer
	if _, err := m.WriteTo(&b); err != nil {
		return nil, errors.New("the mail cannot be written")
	}
	made.data = b.Bytes()
	return made, nil
}

func (m *message) send(c *smtp.Client) outbox.Outcome {
	begin := func() error {
		if err := c.Mail("<" + m.from + ">"); err != nil {
			return err
		}
		for _, to := range m.to {
			if err := c.Rcpt("<" + to + ">"); err != nil {
				return err
			}
		}
		return nil
	}
	if err := begin(); err != nil {
		return m.unsent(err)
	}
	w, err := c.Data()
	if err != nil {
		return m.unsent(err)
	}
	if _, err := w.Write(m.data); err != nil {
		return m.unsent(err)
	}
	err = w.Close() // the line that ends the message, and the answer to it
	var said *textproto.Error
	switch {
	case err == nil:
		return outbox.Outcome{Class: outbox.Answered, Status: 250}
	case errors.As(err, &said):
		return answer(said)
	case wire.Timeout(err):
		return outbox.Outcome{Class: outbox.Unclear, Code: string(api.CodeTimeout), Message: "sent, but no answer came in time"}
	}
	return outbox.Outcome{Class: outbox.Unclear, Code: string(api.CodeConnection), Message: "sent, but the connection broke before an answer came"}
}

// unsent classes an error before the end of the message.
func (m *message) unsent(err error) outbox.Outcome {
	var said *textproto.Error
	if errors.As(err, &said) {
		return answer(said)
	}
	return outbox.Outcome{Class: outbox.NotSent, Code: outbox.CodeWrite, Message: "the connection broke before the whole mail was written"}
}
