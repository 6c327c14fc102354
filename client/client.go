package client

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
)

// The defaults of Opts, and how far Poll may go.
const (
	DefaultTimeout    = 30 * time.Second
	DefaultMaxRetries = 5
	DefaultPoll       = 25 * time.Second // below the 30 s after which common proxies drop a silent connection
	maxPoll           = 60 * time.Second // the server holds no answer for longer
)

// Opts changes how a Client talks; nil or a zero field means the default.
type Opts struct {
	// HTTP sends the requests. A copy of it is used, whose Timeout and
	// CheckRedirect are replaced: time limits are set for each request, and a
	// redirect is never followed, for the API key would go along.
	HTTP *http.Client
	// Timeout limits one try, the server's holding of the answer not counted.
	// The caller's ctx limits all tries together.
	Timeout time.Duration
	// MaxRetries is how often a request is sent again; negative means never.
	MaxRetries int
	// Poll is how long the server is asked to hold the answer while Wait and Do
	// wait; at most 60 s.
	Poll time.Duration
	// UserAgent is put before the client's own.
	UserAgent string
	// OnRetry is called before every wait for another try: no retry is silent.
	OnRetry func(Retried)
}

// Retried is one try that came to nothing and will be made again.
type Retried struct {
	Op   string        // "submit", "get", "wait" ...
	Try  int           // 1 after the first try
	Wait time.Duration // until the next
	Err  error
}

// Client talks to one server with one API key. It is safe for concurrent use.
type Client struct {
	base    *url.URL
	auth    func(http.Header) // closes over the API key: fmt prints fields, and their fields, whatever their methods
	http    *http.Client
	timeout time.Duration
	poll    time.Duration
	retries int
	agent   string
	onRetry func(Retried)
}

// New makes a Client for the server at rawURL, such as http://127.0.0.1:8080;
// a path in it is a prefix of every request's path. White space around apiKey
// is dropped, for keys read from files end in a newline. Nothing is sent yet.
func New(rawURL, apiKey string, o *Opts) (*Client, error) {
	base, err := parseBase(rawURL)
	if err != nil {
		return nil, err
	}
	apiKey = strings.TrimSpace(apiKey)
	if apiKey == "" {
		return nil, api.Errorf(api.CodeUnauthorized, "no API key was given").
			WithFix("Pass the key made by `onefold keys create`; it starts with of_.")
	}
	if !visible(apiKey) {
		return nil, api.Errorf(api.CodeUnauthorized, "the API key holds a character that no key has")
	}
	if o == nil {
		o = &Opts{}
	}
	c := &Client{
		base: base, http: httpClient(o.HTTP), onRetry: o.OnRetry,
		timeout: or(o.Timeout, DefaultTimeout),
		poll:    min(or(o.Poll, DefaultPoll), maxPoll),
		retries: o.MaxRetries,
		agent:   strings.TrimSpace(o.UserAgent + " onefold-go"),
		auth:    func(h http.Header) { h.Set("Authorization", "Bearer "+apiKey) },
	}
	if c.retries == 0 {
		c.retries = DefaultMaxRetries
	}
	return c, nil
}

func parseBase(raw string) (*url.URL, error) {
	bad := func(what string) error {
		return api.Errorf(api.CodeInvalidParam, "the server's URL %s", what).WithField("url").
			WithFix("Pass it like http://127.0.0.1:8080 or https://onefold.example.com.")
	}
	u, err := url.Parse(strings.TrimSpace(raw))
	switch {
	case err != nil:
		return nil, bad("cannot be read") // the error would repeat a password that stands in it
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, bad("does not start with http:// or https:// and a host")
	case u.User != nil:
		return nil, bad("holds a user or password; the API key is passed apart")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, bad("has a query or fragment")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	return u, nil
}

func httpClient(given *http.Client) *http.Client {
	h := http.Client{}
	if given != nil {
		h = *given
	}
	if h.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 64 // every waiting caller holds one; the default of 2 would close the rest
		h.Transport = t
	}
	h.Timeout = 0
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &h
}

func (c *Client) String() string { return fmt.Sprintf("onefold client of %s", c.base) }

func or(d, def time.Duration) time.Duration {
	if d <= 0 {
		return def
	}
	return d
}

// visible says whether every byte of s is visible ASCII.
func visible(s string) bool {
	for i := range len(s) {
		if s[i] < 0x21 || s[i] > 0x7E {
			return false
		}
	}
	return true
}
