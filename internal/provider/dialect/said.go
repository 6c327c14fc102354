package dialect

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/delta"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

// Said is what a provider says of a failure, in any of the shapes that are about.
type Said struct {
	Words   []string // code words, the most telling first
	Status  int      // an HTTP status that stands as the code
	Message string
}

// ErrorIn finds an error in a document: {"error": {...}} or {"error": "..."}, {"errors": [...]}, {"type": "error"},
// and, where none of the members in answer is there, {"detail": ...} and {"message": ..., "code": ...}. Google wraps it
// in an array. An error that is null is none.
func ErrorIn(doc *delta.Value, answer ...string) *Said {
	if items := doc.Items(); len(items) > 0 {
		doc = items[0]
	}
	switch e := doc.Get("error"); {
	case e.IsObject():
		return &Said{Words: Words(e, doc), Status: embedded(e), Message: messageOf(e)}
	case e.IsString() && e.Text() != "":
		return &Said{Words: append(Words(doc), e.Text()), Status: embedded(doc), Message: first(messageOf(doc), e.Text())}
	}
	for _, name := range answer {
		if doc.Get(name) != nil {
			return nil
		}
	}
	if list := doc.Get("errors").Items(); len(list) > 0 {
		return &Said{Words: Words(list[0], doc), Status: embedded(list[0]), Message: first(messageOf(list[0]), list[0].Text())}
	}
	if doc.Get("type").Text() == "error" || doc.Get("detail").Has() || doc.Get("message").IsString() {
		return &Said{Words: Words(doc), Status: embedded(doc), Message: first(messageOf(doc), doc.Get("detail").Text())}
	}
	return nil
}

// SaidBy reads an object that is known to be an error.
func SaidBy(e *delta.Value) *Said {
	return &Said{Words: Words(e), Status: embedded(e), Message: messageOf(e)}
}

// Words collects the code words of an error object, from the most telling to the least.
func Words(objects ...*delta.Value) []string {
	var out []string
	for _, o := range objects {
		for _, path := range [][]string{{"code"}, {"innererror", "code"}, {"type"}, {"status"}, {"reason"}} {
			if w := o.Get(path...).Text(); w != "" {
				out = append(out, w)
			}
		}
		for _, d := range o.Get("details").Items() {
			if w := d.Get("reason").Text(); w != "" {
				out = append(out, w)
			}
		}
	}
	return out
}

// embedded is the HTTP status that stands as a number (or digits) where a code word would.
func embedded(o *delta.Value) int {
	for _, name := range []string{"code", "status", "status_code"} {
		v := o.Get(name)
		n, ok := v.Int()
		if s, err := strconv.ParseInt(v.Text(), 10, 32); err == nil {
			n, ok = s, true
		}
		if ok && 400 <= n && n <= 599 {
			return int(n)
		}
	}
	return 0
}

func messageOf(o *delta.Value) string {
	return first(o.Get("message").Text(), o.Get("detail").Text(), o.Get("error_description").Text())
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// InReply classes an error that came inside a reply with status 2xx: by its code words, else by the status it names,
// else as an error of the provider's own.
func (s Said) InReply(x *wire.Exchange) *provider.Error {
	r, ok := provider.ByWord(s.Words...)
	switch {
	case ok:
	case s.Status != 0:
		r = provider.ByStatus(s.Status)
	default:
		r = provider.ByCode(provider.CodeUpstreamError)
	}
	return s.on(x.Said(r, s.text(http.StatusOK)), x.Header)
}

// AfterTokens classes an error that came inside a stream after its first token: "come back later" no longer means that
// nothing was done. partial is what had come.
func (s Said) AfterTokens(x *wire.Exchange, partial *provider.Response) *provider.Error {
	f := s.InReply(x)
	if f.Class != provider.Rejected {
		after := x.New(provider.CodeStreamError, f.Message)
		after.Gate, after.RetryAfter, after.ProviderCode = f.Gate, f.RetryAfter, f.ProviderCode
		f = after
	}
	f.Partial, f.Billed = partial, provider.BilledYes
	return f
}

// StatusError classes a reply whose status is not 2xx, and returns its body where that is JSON.
func StatusError(x *wire.Exchange) (*provider.Error, *delta.Value) {
	body := x.ErrorBody()
	var s Said
	doc, err := delta.Parse(body)
	if err == nil {
		if found := ErrorIn(doc); found != nil {
			s = *found
		} else {
			s.Words = Words(doc)
		}
	} else if media, _, _ := mime.ParseMediaType(x.Header.Get("Content-Type")); media == "text/plain" {
		s.Message = string(body)
	}
	r, ok := provider.ByWord(s.Words...)
	if !ok {
		r = provider.ByStatus(x.Status)
	}
	return s.on(x.Said(r, s.text(x.Status)), x.Header), doc
}

// text words the failure: the status and what the provider said.
func (s Said) text(status int) string {
	var parts []string
	if status != http.StatusOK {
		parts = append(parts, strings.TrimSpace("status "+strconv.Itoa(status)+" "+http.StatusText(status)))
	}
	if s.Message != "" {
		parts = append(parts, s.Message)
	}
	return strings.Join(parts, ": ")
}

func (s Said) on(f *provider.Error, h http.Header) *provider.Error {
	if len(s.Words) > 0 {
		f.ProviderCode = provider.Scrub(s.Words[0][:min(len(s.Words[0]), 100)], nil)
	}
	if d, ok := provider.RetryAfter(h, time.Now()); ok {
		f.RetryAfter = d
	}
	return f
}
