package dialect

import (
	"bytes"
	"io"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/delta"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

// Sink puts a streamed reply together.
type Sink interface {
	// Add takes one event's object in; ended says that the provider will send nothing more that counts.
	Add(piece *delta.Value) (ended bool)
	// Tokens counts the pieces that brought something so far, Len the bytes of text kept.
	Tokens() int64
	Len() int64
	// Partial is what has come so far, nil when that is nothing.
	Partial() *provider.Response
}

// ReadStream hands the events of a stream to a sink until one of them, [DONE], or the stream ends it. errorIn looks for
// an error in each object first. What the end means, with err when the stream broke or ran out, is the caller's to
// judge; fail is a failure that ended it.
func ReadStream(x *wire.Exchange, r io.Reader, s Sink, errorIn func(*delta.Value) *Said) (ended bool, fail *provider.Error, err error) {
	events := wire.NewEvents(r, x.MaxReply())
	size := int64(0)
	for {
		e, err := events.Next()
		if err != nil {
			return false, nil, err
		}
		data := bytes.TrimSpace(e.Data)
		if len(data) == 0 {
			continue
		}
		if bytes.Equal(data, []byte("[DONE]")) {
			return true, nil, nil
		}
		piece, err := delta.Parse(data)
		switch {
		case (err != nil || !piece.IsObject()) && e.Open:
			continue // the end of the stream cut it; what that means is decided there
		case (err != nil || !piece.IsObject()) && e.Name == "error":
			return false, told(x, s, Said{Message: string(data)}), nil
		case err != nil || !piece.IsObject():
			return false, Reject(x, s, provider.CodeProtocol, "an event of the stream is not a JSON object"), nil
		}
		if said := errorIn(piece); said != nil {
			return false, told(x, s, *said), nil
		}
		if e.Name == "error" {
			return false, told(x, s, *SaidBy(piece)), nil
		}
		if size += int64(len(data)); size > x.MaxReply() && s.Len() > x.MaxReply() {
			return false, x.New(provider.CodeResultTooLarge, "the reply is larger than the limit"), nil
		}
		if s.Add(piece) {
			return true, nil, nil
		}
	}
}

// told classes an error event.
func told(x *wire.Exchange, s Sink, said Said) *provider.Error {
	if s.Tokens() == 0 {
		return said.InReply(x)
	}
	return said.AfterTokens(x, s.Partial())
}

// Reject refuses a streamed reply for a reason of ours; what had come is kept.
func Reject(x *wire.Exchange, s Sink, code, message string) *provider.Error {
	f := x.New(code, message)
	if f.Partial = s.Partial(); f.Partial != nil && f.Billed == provider.BilledUnknown {
		f.Billed = provider.BilledYes
	}
	return f
}
