package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/onefold-dev/onefold/internal/provider"
)

// failSend classes an error that came before any header did.
func (x *Exchange) failSend(err error, complete, shared bool) *provider.Error {
	phase, _ := x.meter.seen()
	if !phase.AtLeast(provider.PhaseWriting) {
		return x.failConnect(err, phase)
	}
	var e *expired
	timedOut := errors.As(context.Cause(x.ctx), &e)
	ended := !timedOut && x.parent.Err() != nil
	// On a connection of its own, an error of Write means that the kernel did not take the rest of this request. A
	// shared one (HTTP/2) may have failed on the frames of another call.
	if op := (*net.OpError)(nil); complete && !timedOut && !ended && !shared && errors.As(err, &op) && op.Op == "write" {
		complete = false
	}
	switch {
	case !complete && timedOut:
		return x.new(provider.CodeWriteTimeout, e.Error()+" while the request was being written")
	case !complete && ended:
		return x.new(provider.CodeNotSentCancelled, "the call was ended before the request was written")
	case !complete:
		return x.new(provider.CodeWriteFailed, cause(err))
	case timedOut && e.layer == layerFirstByte:
		return x.new(provider.CodeFirstByteTimeout, e.Error())
	case timedOut:
		return x.new(provider.CodeTotalTimeout, e.Error())
	case ended:
		return x.new(provider.CodeCancelled, "the call was ended while waiting for the reply")
	}
	return x.new(provider.CodeConnectionLost, cause(err))
}

// failConnect classes an error from before the real send.
func (x *Exchange) failConnect(err error, phase provider.Phase) *provider.Error {
	if e := (*expired)(nil); errors.As(context.Cause(x.ctx), &e) {
		return x.new(provider.CodeConnectTimeout, e.Error()+" while "+phaseWords(phase))
	}
	if x.parent.Err() != nil {
		return x.new(provider.CodeNotSentCancelled, "the call was ended before a connection was there")
	}
	if e := (*net.DNSError)(nil); errors.As(err, &e) {
		return x.new(provider.CodeResolveFailed, e.Error())
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return x.new(provider.CodeRefusedConn, cause(err))
	case phase == provider.PhaseTLS:
		return x.new(provider.CodeTLSFailed, cause(err))
	}
	return x.new(provider.CodeConnectFailed, cause(err))
}

func phaseWords(p provider.Phase) string {
	switch p {
	case provider.PhaseDialing:
		return "dialling"
	case provider.PhaseTLS:
		return "shaking hands"
	}
	return "resolving the host"
}

// Fail classes an error of Read. streamed says whether the reply is a stream; what came of it, if anything, is given
// as partial.
func (x *Exchange) Fail(err error, streamed bool, partial *provider.Response) *provider.Error {
	f := x.failRead(err, streamed)
	f.Partial = partial
	if partial != nil {
		f.Billed = provider.BilledYes
	}
	return x.end(f)
}

func (x *Exchange) failRead(err error, streamed bool) *provider.Error {
	switch {
	case errors.Is(err, errTooLarge):
		return x.new(provider.CodeResultTooLarge, "the reply is larger than the limit")
	case errors.Is(err, errEncoding):
		return x.new(provider.CodeProtocol, "the reply's content encoding is unknown or broken")
	}
	var e *expired
	if errors.As(context.Cause(x.ctx), &e) {
		switch e.layer {
		case layerFirstByte:
			return x.new(provider.CodeFirstByteTimeout, e.Error())
		case layerTotal:
			return x.new(provider.CodeTotalTimeout, e.Error())
		}
		return x.new(provider.CodeIdleTimeout, e.Error())
	}
	if x.parent.Err() != nil {
		return x.new(provider.CodeCancelled, "the call was ended while the reply was coming")
	}
	if streamed {
		return x.new(provider.CodeStreamCut, "the stream ended without a terminal signal: "+cause(err))
	}
	return x.new(provider.CodeBodyCut, "the reply broke off: "+cause(err))
}

// New makes an Error in our own words with what the exchange knows.
func (x *Exchange) New(code, message string) *provider.Error { return x.end(x.new(code, message)) }

// Said makes an Error in the provider's words, which may quote the request.
func (x *Exchange) Said(r provider.Rule, message string) *provider.Error {
	return x.end(r.Error(provider.Scrub(message, x.request, x.secrets...)))
}

func (x *Exchange) new(code, message string) *provider.Error {
	return provider.New(code, provider.Scrub(message, nil, x.secrets...))
}

// end puts on an Error how far the exchange came.
func (x *Exchange) end(f *provider.Error) *provider.Error {
	f.Phase, f.Phases = x.meter.seen()
	if !f.Sent() && f.Class == provider.Unknown {
		// The body was read whole by the transport, whose hook has not come yet: the phase says what is certain.
		f.Phase = provider.PhaseWritten
	}
	f.Status, f.Bytes = x.Status, x.Bytes
	return f
}

// cause words a network error; addresses are kept, they say which of several hosts it was.
func cause(err error) string {
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed"
	case errors.Is(err, syscall.ECONNRESET):
		return "the connection was reset"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	}
	return err.Error()
}
