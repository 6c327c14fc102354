package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// schema is the JSON Schema a kind's output must fit.
type schema struct {
	v *value
	c *jsonschema.Schema
}

// noLoader keeps a schema from reading files or the network: all it refers to must stand in it.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("a schema cannot refer to %s", clip(url))
}

func (d *decoder) compileSchema(v *value, path string) *schema {
	doc, err := decodeAny(v.appendJSON(nil))
	if err == nil {
		c := jsonschema.NewCompiler()
		c.UseLoader(noLoader{})
		if err = c.AddResource("schema.json", doc); err == nil {
			var s *jsonschema.Schema
			if s, err = c.Compile("schema.json"); err == nil {
				return &schema{v: v, c: s}
			}
		}
	}
	d.add(v.pos, path, "is not a JSON Schema: "+schemaMessage(err), "see https://json-schema.org/draft/2020-12")
	return nil
}

func schemaMessage(err error) string {
	var se *jsonschema.SchemaValidationError
	if errors.As(err, &se) {
		err = se.Err
	}
	var ve *jsonschema.ValidationError
	if errors.As(err, &ve) {
		return describe(ve)
	}
	return clipLong(strings.ReplaceAll(err.Error(), "\n", " "))
}

// check reports where data does not fit the schema, naming places and keywords but no values.
func (s *schema) check(data []byte) (err error) {
	defer func() {
		if recover() != nil { // numbers beyond what math/big takes
			err = errors.New("the model's JSON could not be checked against the schema")
		}
	}()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return errors.New("the model's message is not JSON")
	}
	var ve *jsonschema.ValidationError
	if err := s.c.Validate(v); errors.As(err, &ve) {
		return errors.New("the model's JSON does not fit the schema: " + describe(ve))
	} else if err != nil {
		return errors.New("the model's JSON does not fit the schema")
	}
	return nil
}

// describe names the first innermost violation.
func describe(e *jsonschema.ValidationError) string {
	for len(e.Causes) > 0 {
		e = e.Causes[0]
	}
	at := "/" + strings.Join(e.InstanceLocation, "/")
	if r, ok := e.ErrorKind.(*kind.Required); ok {
		return fmt.Sprintf("at %s: missing %s", clip(at), clip(strings.Join(r.Missing, ", ")))
	}
	if t, ok := e.ErrorKind.(*kind.Type); ok {
		return fmt.Sprintf("at %s: is %s, must be %s", clip(at), t.Got, strings.Join(t.Want, " or "))
	}
	word := strings.Join(e.ErrorKind.KeywordPath(), "/")
	if word == "" {
		word = "schema"
	}
	return fmt.Sprintf("at %s: breaks %s", clip(at), clip(word))
}
