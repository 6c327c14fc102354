package dialect

import (
	"bufio"
	"bytes"
	"io"
	"mime"
	"strings"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/delta"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

// Reader reads what a reply with status 2xx turns out to be.
type Reader struct {
	Stream   func(x *wire.Exchange, r io.Reader) (*provider.Response, *provider.Error)
	Document func(x *wire.Exchange, doc *delta.Value, raw []byte) (*provider.Response, *provider.Error)
}

// Read reads the reply, whatever it turns out to be: servers answer a streamed request with a document, and the other
// way round, and some name neither. Its error carries the provider's id of the request.
func (d Reader) Read(x *wire.Exchange, streamed bool) (*provider.Response, *provider.Error) {
	resp, fail := d.read(x, streamed)
	id := RequestID(x.Header)
	if fail != nil {
		fail.RequestID = id
		return nil, fail
	}
	resp.RequestID = id
	return resp, nil
}

func (d Reader) read(x *wire.Exchange, streamed bool) (*provider.Response, *provider.Error) {
	if x.Status < 200 || x.Status > 299 {
		fail, _ := StatusError(x)
		return nil, fail
	}
	media, _, _ := mime.ParseMediaType(x.Header.Get("Content-Type"))
	if media == "text/event-stream" && d.Stream != nil {
		return d.Stream(x, x)
	}
	r := bufio.NewReaderSize(x, 4<<10)
	if streamed && d.Stream != nil && looksLikeStream(r, x.MaxReply()) {
		return d.Stream(x, r)
	}
	doc, raw, fail := Document(x, r)
	if fail != nil {
		return nil, fail
	}
	return d.Document(x, doc, raw)
}

// looksLikeStream says whether what comes starts with a field of an event stream. White space before it (sent to keep
// the connection alive) is read over, as much as a reply may be long. An error is left for the next read.
func looksLikeStream(r *bufio.Reader, limit int64) bool {
	for n := int64(0); n < limit; n++ {
		b, err := r.Peek(1)
		if err != nil {
			return false
		}
		if b[0] != ' ' && b[0] != '\r' && b[0] != '\n' && b[0] != '\t' {
			break
		}
		_, _ = r.Discard(1)
	}
	b, err := r.Peek(1)
	if err != nil {
		return false
	}
	if b[0] == 0xEF || strings.IndexByte("deir:", b[0]) >= 0 {
		b, _ = r.Peek(5)
	}
	b = bytes.TrimPrefix(b, []byte("\xEF\xBB\xBF"))
	for _, field := range []string{":", "data", "event", "id:", "retry"} {
		if n := min(len(field), len(b)); n > 0 && string(b[:n]) == field[:n] {
			return true
		}
	}
	return false
}

// Document reads a reply that is one JSON object to its end.
func Document(x *wire.Exchange, r io.Reader) (*delta.Value, []byte, *provider.Error) {
	b, err := x.ReadAll(r)
	if err != nil {
		return nil, nil, x.Fail(err, false, nil)
	}
	b = bytes.TrimSpace(bytes.TrimPrefix(b, []byte("\xEF\xBB\xBF")))
	doc, err := delta.Parse(b)
	if err != nil || !doc.IsObject() {
		return nil, nil, WithReply(x.New(provider.CodeProtocol, protocolMessage(x, b)), b)
	}
	x.Terminal()
	return doc, b, nil
}

// WithReply keeps the body of a reply that was whole and could not be used.
func WithReply(f *provider.Error, b []byte) *provider.Error {
	f.Reply = b
	return f
}

func protocolMessage(x *wire.Exchange, b []byte) string {
	switch media, _, _ := mime.ParseMediaType(x.Header.Get("Content-Type")); {
	case len(b) == 0:
		return "the reply is empty"
	case media == "text/html" || b[0] == '<':
		return "the reply is an HTML page: base_url may be wrong, or a proxy answers in the provider's place"
	}
	return "the reply is not one JSON object"
}
