package openai

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

// upstreamError is what a provider says of a failure, in any of the shapes that are about.
type upstreamError struct {
	words   []string // code words, the most telling first
	status  int      // an HTTP status that stands as the code
	message string
}

// errorIn finds an error in a document: {"error": {...}} or {"error": "..."}, {"errors": [...]}, {"type": "error"},
// an error inside a choice, and, where there are no choices, {"detail": ...} and {"message": ..., "code": ...}. Google
// wraps it in an array.
func errorIn(doc *delta.Value) *upstreamError {
	for _, c := range doc.Get("choices").Items() {
		if e := c.Get("error"); e.IsObject() {
			return &upstreamError{words: words(e), status: embedded(e), message: messageOf(e)}
		}
	}
	if items := doc.Items(); len(items) > 0 {
		doc = items[0]
	}
	switch e := doc.Get("error"); {
	case e.IsObject():
		return &upstreamError{words: words(e, doc), status: embedded(e), message: messageOf(e)}
	case e.IsString() && e.Text() != "":
		return &upstreamError{words: append(words(doc), e.Text()), status: embedded(doc), message: first(messageOf(doc), e.Text())}
	}
	if doc.Get("choices") != nil {
		return nil
	}
	if list := doc.Get("errors").Items(); len(list) > 0 {
		return &upstreamError{words: words(list[0], doc), status: embedded(list[0]), message: first(messageOf(list[0]), list[0].Text())}
	}
	if doc.Get("type").Text() == "error" || doc.Get("detail").Has() || doc.Get("message").IsString() {
		return &upstreamError{words: words(doc), status: embedded(doc), message: first(messageOf(doc), doc.Get("detail").Text())}
	}
	return nil
}

// words collects the code words of an error object, from the most telling to the least.
func words(objects ...*delta.Value) []string {
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

// rule classes an error that came inside a reply with status 2xx: by its code words, else by the status it names, else
// as an error of the provider's own.
func (e upstreamError) rule(x *wire.Exchange) *provider.Error {
	r, ok := provider.ByWord(e.words...)
	switch {
	case ok:
	case e.status != 0:
		r = provider.ByStatus(e.status)
	default:
		r = provider.ByCode(provider.CodeUpstreamError)
	}
	return e.on(x.Said(r, e.text(http.StatusOK)), x.Header)
}

// statusError classes a reply whose status is not 2xx.
func statusError(x *wire.Exchange) *provider.Error {
	body := x.ErrorBody()
	var e upstreamError
	if doc, err := delta.Parse(body); err == nil {
		if found := errorIn(doc); found != nil {
			e = *found
		} else {
			e.words = words(doc)
		}
	} else if media, _, _ := mime.ParseMediaType(x.Header.Get("Content-Type")); media == "text/plain" {
		e.message = string(body)
	}
	r, ok := provider.ByWord(e.words...)
	if !ok {
		r = provider.ByStatus(x.Status)
	}
	return e.on(x.Said(r, e.text(x.Status)), x.Header)
}

// text words the failure: the status and what the provider said.
func (e upstreamError) text(status int) string {
	var parts []string
	if status != http.StatusOK {
		parts = append(parts, strings.TrimSpace("status "+strconv.Itoa(status)+" "+http.StatusText(status)))
	}
	if e.message != "" {
		parts = append(parts, e.message)
	}
	return strings.Join(parts, ": ")
}

func (e upstreamError) on(f *provider.Error, h http.Header) *provider.Error {
	if len(e.words) > 0 {
		f.ProviderCode = provider.Scrub(e.words[0][:min(len(e.words[0]), 100)], nil)
	}
	if d, ok := provider.RetryAfter(h, time.Now()); ok {
		f.RetryAfter = d
	}
	return f
}
