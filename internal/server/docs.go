package server

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"
)

//go:embed docs.html
var docsFile embed.FS

// document renders the description once, after all routes are there.
func (s *Server) document() error {
	o := s.huma.OpenAPI()
	var err error
	if s.spec, err = o.YAML(); err != nil {
		return fmt.Errorf("render openapi.yaml: %w", err)
	}
	if s.specJSON, err = o.MarshalJSON(); err != nil {
		return fmt.Errorf("render openapi.json: %w", err)
	}
	page, err := template.New("docs.html").ParseFS(docsFile, "docs.html")
	if err != nil {
		return fmt.Errorf("read the page of the description: %w", err)
	}
	var buf bytes.Buffer
	if err := page.Execute(&buf, pageOf(o)); err != nil {
		return fmt.Errorf("render the page of the description: %w", err)
	}
	s.docs = buf.Bytes()
	return nil
}

func (s *Server) openapi(context.Context, *exchange, *none) (*answer, error) {
	return fixed(specType, s.spec), nil
}

func (s *Server) openapiJSON(context.Context, *exchange, *none) (*answer, error) {
	return fixed(specJSONType, s.specJSON), nil
}

// docsPage forbids the page everything but its own inline style, so that it can
// never load anything.
func (s *Server) docsPage(context.Context, *exchange, *none) (*answer, error) {
	a := fixed(htmlType, s.docs)
	a.set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	a.set("X-Content-Type-Options", "nosniff")
	return a, nil
}

func fixed(media string, body []byte) *answer {
	a := &answer{status: http.StatusOK, body: body}
	a.set("Content-Type", media)
	a.set("Cache-Control", "public, max-age=300")
	return a
}

// docPage is what docs.html shows.
type docPage struct {
	Title, Version, About string
	Operations            []docOperation
}

type docOperation struct {
	*huma.Operation
	Answers []docAnswer
}

type docAnswer struct {
	Status  string
	Text    string
	Headers []string
}

func pageOf(o *huma.OpenAPI) docPage {
	p := docPage{Title: o.Info.Title, Version: o.Info.Version, About: o.Info.Description}
	for _, path := range slices.Sorted(maps.Keys(o.Paths)) {
		item := o.Paths[path]
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Delete} {
			if op == nil {
				continue
			}
			d := docOperation{Operation: op}
			for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
				r := op.Responses[status]
				d.Answers = append(d.Answers, docAnswer{status, r.Description, slices.Sorted(maps.Keys(r.Headers))})
			}
			p.Operations = append(p.Operations, d)
		}
	}
	return p
}
