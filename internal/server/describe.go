package server

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/canon"
)

const (
	specType     = "application/yaml"
	specJSONType = "application/json"
	htmlType     = "text/html; charset=utf-8"
	bytesType    = "application/octet-stream"
)

// route is one operation as routes.go writes it.
type route struct {
	method, path, id string
	resource         string
	summary, doc     string
	scopes           []api.Scope // any of these
	open             bool        // without an API key
	reads            bool        // the database although open
	keyed            bool        // takes an idempotency key
	body             any         // a value of the body's type, for the description
	bodyMedia        string      // of a body that is not JSON
	bodyOptional     bool
	answers          is
}

// is says what a route answers, by status.
type is map[int]response

type response struct {
	text    string
	media   string
	schema  func(huma.Registry) *huma.Schema // nil: bytes
	headers []string
}

func may(scopes ...api.Scope) []api.Scope { return scopes }

var refused = response{media: problemType, schema: schemaOf[problem]}

// refusedFor is refused with an answer that says when to come again.
var refusedFor = response{media: problemType, schema: schemaOf[problem], headers: []string{"Retry-After"}}

func aTask(text string, headers ...string) response {
	return response{text: text, media: jsonType, schema: schemaOf[api.Task], headers: headers}
}

func listOf[T any](text string) response {
	return response{text: text, media: jsonType, schema: schemaOf[api.List[T]]}
}

func object[T any](text string, headers ...string) response {
	return response{text: text, media: jsonType, schema: schemaOf[T], headers: headers}
}

func raw(text string, headers ...string) response {
	value := func(huma.Registry) *huma.Schema {
		return &huma.Schema{Description: "Any JSON value, byte for byte as it is stored."}
	}
	return response{text: text, media: jsonType, schema: value, headers: headers}
}

func empty(text string, headers ...string) response { return response{text: text, headers: headers} }

func other(text, media string) response { return response{text: text, media: media} }

func schemaOf[T any](r huma.Registry) *huma.Schema {
	t := reflect.TypeFor[T]()
	return r.Schema(t, true, t.Name())
}

// headerDocs describes the headers of answers.
var headerDocs = map[string]string{
	"Location":            "Where the task is polled.",
	"Retry-After":         "Seconds after which asking again makes sense.",
	"ETag":                "Changes with all that matters of the task; `duplicates` does not.",
	"Idempotent-Replayed": "`true` when the key already meant this task.",
	"Preference-Applied":  "The wait that was granted.",
}

// describe is the operation for huma: its description, and what comes before
// its handler.
func (o route) describe(s *Server) huma.Operation {
	reg := s.huma.OpenAPI().Components.Schemas
	op := huma.Operation{
		OperationID: o.id, Method: o.method, Path: o.path, Summary: o.summary, Description: o.doc, Tags: []string{o.resource},
		Responses: map[string]*huma.Response{}, DefaultStatus: slices.Min(slices.Collect(maps.Keys(o.answers))),
		RejectUnknownQueryParameters: true,
	}
	answers := maps.Clone(o.answers)
	answers[400] = refused // unknown parameters
	if !o.open {
		answers[401], answers[403] = refused, refused
		op.Security = []map[string][]string{{"apiKey": {}}}
		op.Middlewares = huma.Middlewares{s.authenticate(o.scopes)}
		names := make([]string, len(o.scopes))
		for i, scope := range o.scopes {
			names[i] = "`" + string(scope) + "`"
		}
		op.Description = strings.TrimSpace(op.Description + "\n\nScope: " + strings.Join(names, " or ") + ".")
	}
	if !o.open || o.reads {
		answers[503] = refused
	}
	if !o.open {
		answers[500] = refused
	}
	for status, a := range answers {
		op.Responses[strconv.Itoa(status)] = a.describe(reg, status)
	}
	if o.keyed {
		op.Parameters = append(op.Parameters, keyParam(canon.Header, ""), keyParam(canon.HeaderAlias, "Another name of Idempotency-Key. "))
	}
	op.Parameters = append(op.Parameters, &huma.Param{
		Name: headerRequestID, In: "header", Schema: &huma.Schema{Type: huma.TypeString},
		Description: "An id of your own for this request, 1 to 128 letters, digits and -_.:, which comes back and stands in the logs.",
	})
	return op
}

// describeBody adds the body to the description, after the route was registered:
// of an operation that has one before, huma would read the body itself.
func (o route) describeBody(doc *huma.OpenAPI) {
	if o.bodyMedia != "" {
		doc.Paths[o.path].Post.RequestBody = &huma.RequestBody{
			Required: true,
			Content:  map[string]*huma.MediaType{o.bodyMedia: {Schema: &huma.Schema{Type: huma.TypeString, Description: "One request a line."}}},
		}
	}
	if o.body != nil {
		op := doc.Paths[o.path].Post
		if o.method == http.MethodPut {
			op = doc.Paths[o.path].Put
		}
		op.RequestBody = &huma.RequestBody{
			Required: !o.bodyOptional,
			Content:  map[string]*huma.MediaType{jsonType: {Schema: doc.Components.Schemas.Schema(reflect.TypeOf(o.body), true, "")}},
		}
	}
}

func keyParam(name, what string) *huma.Param {
	least, most := 1, canon.MaxKeyBytes
	return &huma.Param{
		Name: name, In: "header", Schema: &huma.Schema{Type: huma.TypeString, MinLength: &least, MaxLength: &most, Pattern: "^[!-~]+$"},
		Description: what + "The caller's name for this intent: 1 to 255 visible ASCII characters, made once and the same on every retry. " +
			"Required unless the kind's dedupe is `none`.",
	}
}

func (a response) describe(reg huma.Registry, status int) *huma.Response {
	r := &huma.Response{Description: a.text, Headers: map[string]*huma.Param{}}
	if r.Description == "" {
		r.Description = http.StatusText(status)
	}
	headers := append([]string{headerRequestID}, a.headers...)
	if status == 503 || status == 429 {
		headers = append(headers, "Retry-After")
	}
	for _, name := range headers {
		r.Headers[name] = &huma.Param{Description: headerDocs[name], Schema: &huma.Schema{Type: huma.TypeString}}
	}
	if a.media != "" {
		m := &huma.MediaType{}
		if a.schema != nil {
			m.Schema = a.schema(reg)
		}
		media, _, _ := strings.Cut(a.media, ";")
		r.Content = map[string]*huma.MediaType{media: m}
	}
	return r
}

// description is the frame of the API's description.
func description(version string) huma.Config {
	hookErrors()
	c := huma.DefaultConfig("onefold", version)
	c.Info.Description = "Durable LLM tasks: submit once under a key, poll the same answer. Duplicates fold onto one task."
	c.Info.License = &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}
	c.OpenAPIPath, c.DocsPath, c.SchemasPath = "", "", "" // served by routes of ours
	c.CreateHooks = nil                                   // no $schema member in bodies
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"apiKey": {Type: "http", Scheme: "bearer", BearerFormat: "of_<id>_<secret>", Description: "An API key made by `onefold keys create`."},
	}
	return c
}
