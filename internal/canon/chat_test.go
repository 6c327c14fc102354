package canon_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/canon"
)

func TestCheckChat(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		input string
		want  place // zero: accepted
	}{
		"plain":                 {`{"model":"m","messages":[{"role":"user","content":"hi"}]}`, place{}},
		"no messages":           {`{"model":"m","prompt":"hi"}`, place{}},
		"empty messages":        {`{"messages":[],"model":"m"}`, place{}},
		"unknown members":       {`{"model":"m","X":1,"x":{"Model":1},"MODELS":1,"mode":1,"messages":[{"role":"u","Roles":1,"content":[{"Type":"t"}]}]}`, place{}},
		"no known letter":       {`{"model":"m","mödel":1,"модель":2,"messages":[{"rôle":1}]}`, place{}},
		"escaped name":          {`{"mod\u0065l":"m"}`, place{}},
		"variant elsewhere":     {`{"model":"m","metadata":[{"Role":1}],"tools":[{"Content":1}]}`, place{}},
		"message deeper":        {`{"model":"m","messages":[[{"Role":1}]]}`, place{}},
		"model missing":         {`{"messages":[]}`, place{"invalid_input", -1, ""}},
		"model null":            {`{"model":null}`, place{"invalid_input", -1, ""}},
		"model a number":        {`{"model":1}`, place{"invalid_input", -1, ""}},
		"model empty":           {`{"model":""}`, place{"invalid_input", -1, ""}},
		"model blank":           {`{"model":" \t\u00a0\u2003 "}`, place{"invalid_input", -1, ""}},
		"model deeper":          {`{"x":{"model":"m"}}`, place{"invalid_input", -1, ""}},
		"variant only":          {`{"MODEL":"b","messages":[]}`, place{"invalid_input", -1, "MODEL"}},
		"variant beside":        {`{"model":"a","Model":"b"}`, place{"invalid_input", -1, "Model"}},
		"variant by escape":     {`{"model":"a","\u004dodel":"b"}`, place{"invalid_input", -1, "Model"}},
		"long s":                {`{"model":"m","meſſages":[]}`, place{"invalid_input", -1, `["me\u017f\u017fages"]`}},
		"long s by escape":      {`{"model":"m","me\u017fsages":[]}`, place{"invalid_input", -1, `["me\u017fsages"]`}},
		"Kelvin sign":           {`{"model":"m","max_to\u212aens":1}`, place{"invalid_input", -1, `["max_to\u212aens"]`}},
		"messages":              {`{"model":"m","MESSAGES":[]}`, place{"invalid_input", -1, "MESSAGES"}},
		"temperature":           {`{"model":"m","Temperature":1}`, place{"invalid_input", -1, "Temperature"}},
		"in a message":          {`{"model":"m","messages":[{"role":"u"},{"Role":"system"}]}`, place{"invalid_input", -1, "messages[1].Role"}},
		"in a message, folded":  {`{"messages":[{"tool_call\u017f":1}],"model":"m"}`, place{"invalid_input", -1, `messages[0]["tool_call\u017f"]`}},
		"not an object":         {`["model"]`, place{"invalid_input", -1, ""}},
		"a string":              {` "model"`, place{"invalid_input", -1, ""}},
		"malformed":             {`{"model":"m"`, place{"invalid_json", 12, "model"}},
		"duplicate":             {`{"model":"m","model":"m"}`, place{"duplicate_member", 13, "model"}},
		"duplicate in messages": {`{"model":"m","messages":[{"role":"a","role":"b"}]}`, place{"duplicate_member", 37, "messages[0].role"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got place
			if err := canon.CheckChat([]byte(tc.input)); err != nil {
				got = placeOf(t, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
