package clienttest

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/submission"
)

const maxWait = 60 * time.Second

// answer is what a route gives.
type answer struct {
	status int
	header http.Header
	body   []byte
}

type route func(r *http.Request) (*answer, error)

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, f := range map[string]route{
		"POST /v1/tasks":              s.post,
		"GET /v1/tasks":               s.list,
		"POST /v1/tasks/bulk":         s.bulk,
		"POST /v1/tasks/wait":         s.waitAny,
		"GET /v1/tasks/{id}":          s.get,
		"GET /v1/tasks/{id}/input":    s.input,
		"GET /v1/tasks/{id}/result":   s.result,
		"POST /v1/tasks/{id}/cancel":  s.cancel,
		"POST /v1/tasks/{id}/retry":   s.retry,
		"POST /v1/tasks/{id}/resolve": s.resolve,

		"POST /v1/batches":             s.upload,
		"GET /v1/batches":              s.listBatches,
		"GET /v1/batches/{id}":         s.getBatch,
		"GET /v1/batches/{id}/results": s.results,
		"POST /v1/batches/{id}/cancel": s.cancelBatch,
		"POST /v1/batches/{id}/retry":  s.retryBatch,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, f) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, func(*http.Request) (*answer, error) {
			return nil, api.Errorf(api.CodeNotFound, "the server of package clienttest does not serve %s", r.URL.Path)
		})
	})
	return mux
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, f route) {
	refuse, lose := s.trouble(r)
	var a *answer
	var err error = refuse
	if refuse == nil {
		if err = s.authenticate(r); err == nil {
			a, err = f(r)
		}
	}
	out := http.ResponseWriter(w)
	if lose {
		out = httptest.NewRecorder()
	}
	if err != nil {
		a = problem(err)
	}
	maps.Copy(out.Header(), a.header)
	if out.Header().Get("Content-Type") == "" {
		out.Header().Set("Content-Type", "application/json")
	}
	out.WriteHeader(a.status)
	_, _ = out.Write(a.body)
	if lose {
		panic(http.ErrAbortHandler) // net/http cuts the connection without a word
	}
}

func (s *Server) authenticate(r *http.Request) error {
	lines := r.Header.Values("Authorization")
	if len(lines) != 1 || lines[0] != "Bearer "+s.Key {
		return api.Errorf(api.CodeUnauthorized, "the API key is missing or not that of this server").WithField("Authorization")
	}
	return nil
}

// problem is an error as the real server answers it.
func problem(err error) *answer {
	var e *api.Error
	if !errors.As(err, &e) {
		e = api.Errorf(api.CodeInternal, "%v", err)
	}
	doc := struct {
		Title string `json:"title"`
		api.Error
	}{http.StatusText(e.Status), *e}
	doc.RequestID = uuid.NewString()
	body, jerr := json.Marshal(doc)
	if jerr != nil {
		panic(jerr) // texts and numbers only
	}
	a := &answer{status: e.Status, header: http.Header{"Content-Type": {"application/problem+json"}}, body: body}
	if e.RetryAfter > 0 {
		a.header.Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	}
	if e.Status == http.StatusUnauthorized {
		a.header.Set("WWW-Authenticate", `Bearer realm="onefold"`)
	}
	return a
}

// read reads the body of a request.
func read(r *http.Request) ([]byte, error) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	body, rerr := io.ReadAll(io.LimitReader(r.Body, submission.MaxBytes+1))
	switch {
	case rerr != nil:
		return nil, api.Errorf(api.CodeRequestTimeout, "the body was cut off")
	case len(body) > submission.MaxBytes:
		return nil, api.Errorf(api.CodeTooLarge, "the body has more than %d bytes", submission.MaxBytes)
	case len(body) > 0 && (err != nil || media != "application/json"):
		return nil, api.Errorf(api.CodeMediaType, "the body is not declared as application/json").WithField("Content-Type")
	case r.Header.Get("Content-Encoding") != "":
		return nil, api.Errorf(api.CodeEncoding, "the body is encoded").WithField("Content-Encoding")
	}
	return body, nil
}

// params checks that a request has no parameter but those named.
func params(r *http.Request, known ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalidParam, "the query cannot be read")
	}
	for name := range q {
		bare, _, _ := strings.Cut(name, "[")
		if !slices.Contains(known, bare) {
			return nil, api.Errorf(api.CodeInvalidParam, "there is no parameter of that name").WithField(submission.Printable(name))
		}
	}
	return q, nil
}

// hold is how long an answer is to wait for its task.
func hold(q url.Values) (time.Duration, error) {
	text := q.Get("wait")
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if n, nerr := strconv.ParseUint(text, 10, 16); nerr == nil {
		d, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || d < 0 || d > maxWait {
		return 0, api.Errorf(api.CodeInvalidParam, "wait is not a time from 0 to 60 s").WithField("wait")
	}
	return d, nil
}

var preferWait = regexp.MustCompile(`(?i)(?:^|,)\s*wait="?(\d{1,9})"?\s*(?:[,;]|$)`)

// preferred reads Prefer: wait=N.
func preferred(h http.Header) time.Duration {
	for _, line := range h.Values("Prefer") {
		if m := preferWait.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[1])
			return min(time.Duration(n)*time.Second, maxWait)
		}
	}
	return 0
}

var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}`)

func traceID(r *http.Request) string {
	if m := traceparent.FindStringSubmatch(r.Header.Get("traceparent")); m != nil {
		return m[1]
	}
	return ""
}
