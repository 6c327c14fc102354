package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/respjson"
)

// openAIOutput is a line of a batch's output as OpenAI's documentation has it;
// its library has types for what is in body, and none for the line.
type openAIOutput struct {
	ID       string `json:"id"`
	CustomID string `json:"custom_id"`
	Response *struct {
		StatusCode int             `json:"status_code"`
		RequestID  string          `json:"request_id"`
		Body       json.RawMessage `json:"body"`
	} `json:"response"`
	Error *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// readOpenAI reads a line as strictly as can be: all fields, and no others.
func readOpenAI(t *testing.T, l []byte) (out openAIOutput) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(l))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		t.Fatalf("%v in %s", err, l)
	}
	var names map[string]json.RawMessage
	if err := json.Unmarshal(l, &names); err != nil || len(names) != 4 {
		t.Errorf("%d fields in %s, want each of the four, %v", len(names), l, err)
	}
	if !strings.HasPrefix(out.ID, "batch_req_") || (out.Response == nil) == (out.Error == nil) {
		t.Errorf("got %s", l)
	}
	return out
}

// checkOpenAI reads an output line as a program written for OpenAI's API does.
func checkOpenAI(t *testing.T, l []byte, i int) {
	t.Helper()
	out := readOpenAI(t, l)
	if out.CustomID != fmt.Sprint("row-", i) || out.Response == nil || out.Response.StatusCode != 200 || out.Response.RequestID == "" {
		t.Fatalf("line %d: got %s", i, l)
	}
	var c openai.ChatCompletion
	if err := json.Unmarshal(out.Response.Body, &c); err != nil {
		t.Fatalf("line %d: %v in %s", i, err, l)
	}
	if c.Object != "chat.completion" || len(c.Choices) != 1 || c.Choices[0].Message.Content != fmt.Sprint("say ", i) ||
		c.Choices[0].FinishReason == "" || c.Usage.TotalTokens == 0 || c.Model != "m" {
		t.Errorf("line %d: the body reads as %+v", i, c)
	}
	if wrong := strict(reflect.ValueOf(c), "body"); len(wrong) > 0 {
		t.Errorf("line %d: %s in %s", i, strings.Join(wrong, "; "), out.Response.Body)
	}
}

// strict says what a value of the library's lacks that it says is required, and
// what came that it does not know.
func strict(v reflect.Value, path string) (wrong []string) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			wrong = append(wrong, strict(v.Index(i), fmt.Sprintf("%s[%d]", path, i))...)
		}
		return wrong
	case reflect.Struct:
	default:
		return nil
	}
	came := v.FieldByName("JSON")
	if !came.IsValid() {
		return nil
	}
	for name := range came.FieldByName("ExtraFields").Interface().(map[string]respjson.Field) {
		wrong = append(wrong, path+"."+name+" is not known")
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		at := came.FieldByName(f.Name)
		if !at.IsValid() || f.Name == "JSON" {
			continue // of a union, or of none of the library's
		}
		mark, ok := at.Interface().(respjson.Field)
		if !ok {
			continue
		}
		name := path + "." + f.Tag.Get("json")
		switch needed := strings.Contains(f.Tag.Get("api"), "required") || f.Tag.Get("default") != ""; {
		case mark.Raw() == "" && needed:
			wrong = append(wrong, name+" is missing")
		case mark.Raw() != "" && mark.Raw() != "null" && !mark.Valid():
			wrong = append(wrong, name+" is of another type")
		case mark.Valid():
			wrong = append(wrong, strict(v.Field(i), name)...)
		}
	}
	return wrong
}

// A file as OpenAI's documentation and users write it, all its options in the
// body, runs unchanged; the lines that fail are error lines of the same form.
func TestOpenAIFileUnchanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	body := func(model, more string) string {
		return fmt.Sprintf(`{"model":%q,"messages":[{"role":"developer","content":"You are a helpful assistant."},{"role":"user","content":[{"type":"text","text":"Hello world!"}]}],%s}`, model, more)
	}
	file := ""
	for i, b := range []string{
		body("m", `"max_tokens":1000`),
		body("m", `"max_completion_tokens":1000,"temperature":0.2,"top_p":1,"n":1,"seed":7,"stop":null,"user":"u"`),
		body("m", `"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}}}`),
		body("m", `"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}],"tool_choice":"none","metadata":{"k":"v"},"store":false`),
		body("fake:status=400", `"max_tokens":1`),
	} {
		file += fmt.Sprintf(`{"custom_id": "request-%d", "method": "POST", "url": "/v1/chat/completions", "body": %s}`+"\n", i+1, b)
	}
	in, out := w.file(t, "in.jsonl", file), filepath.Join(w.dir, "out.jsonl")
	if code, _, stderr := w.run(t.Context(), "batch", "run", in, "-o", out); code != exitFailed || !strings.Contains(stderr, "4 succeeded, 1 failed") {
		t.Fatalf("got exit code %d, %s", code, stderr)
	}
	var ids []string
	for _, l := range readLines(t, out) {
		r := readOpenAI(t, l)
		ids = append(ids, r.CustomID)
		if r.CustomID == "request-5" {
			if r.Error == nil || r.Error.Code != "rejected" || r.Error.Message == "" {
				t.Errorf("the refused line: %s", l)
			}
			continue
		}
		var c openai.ChatCompletion
		if err := json.Unmarshal(r.Response.Body, &c); err != nil || c.Choices[0].FinishReason != "stop" {
			t.Errorf("%s: %v in %s", r.CustomID, err, l)
		}
		if wrong := strict(reflect.ValueOf(c), "body"); len(wrong) > 0 {
			t.Errorf("%s: %s in %s", r.CustomID, strings.Join(wrong, "; "), r.Response.Body)
		}
	}
	if !slices.Equal(ids, []string{"request-1", "request-2", "request-3", "request-4", "request-5"}) {
		t.Errorf("the lines came as %v", ids)
	}
}
