package canon_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/canon"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		a, b string
		want []string
	}{
		"equal":             {`{"a":1.0,"b":[{"x":"\u0041"}]}`, `{ "b":[{"x":"A"}],"a":1}`, nil},
		"leaf":              {`{"input":{"messages":[{"role":"user","content":"a"}]}}`, `{"input":{"messages":[{"role":"user","content":"b"}]}}`, []string{"input.messages[0].content"}},
		"number":            {`{"input":{"n":9007199254740992}}`, `{"input":{"n":9007199254740993}}`, []string{"input.n"}},
		"several, sorted":   {`{"kind":"a","input":{"z":1,"b":[1,2,3]}}`, `{"kind":"b","input":{"z":2,"b":[1,0,0]}}`, []string{"input.b[1]", "input.b[2]", "input.z", "kind"}},
		"absent left":       {`{"input":1}`, `{"input":1,"effects":[{"name":"x"}]}`, []string{"effects"}},
		"absent right":      {`{"effects":[],"input":1}`, `{"input":1}`, []string{"effects"}},
		"absent is no null": {`{"effects":null}`, `{}`, []string{"effects"}},
		"between":           {`{"a":1,"c":1,"e":1}`, `{"b":1,"c":1,"d":1}`, []string{"a", "b", "d", "e"}},
		"longer array":      {`{"a":[1,{"b":2},3]}`, `{"a":[1]}`, []string{"a[1]", "a[2]"}},
		"shorter array":     {`{"a":[]}`, `{"a":[[],{}]}`, []string{"a[0]", "a[1]"}},
		"swapped":           {`{"m":[{"r":"u"},{"r":"a"}]}`, `{"m":[{"r":"a"},{"r":"u"}]}`, []string{"m[0].r", "m[1].r"}},
		"other type":        {`{"a":{"b":1},"c":[1],"d":"1"}`, `{"a":[1],"c":{"0":1},"d":1}`, []string{"a", "c", "d"}},
		"object and text":   {`{"a":{"b":["}",{"c":"\"]"}]},"z":1}`, `{"a":"x","z":2}`, []string{"a", "z"}},
		"unusual names":     {`{"a b":{"":{"x.y":{"0":{"é":1}}}}}`, `{"a b":{"":{"x.y":{"0":{"é":2}}}}}`, []string{`["a b"][""]["x.y"]["0"]["\u00e9"]`}},
		"escaped names":     {`{"\"":1,"\\":1,"\t":{"\n":1}}`, `{"\"":2,"\\":1,"\t":{"\n":2}}`, []string{`["\t"]["\n"]`, `["\""]`}},
		"hyphen and digit":  {`{"x-1":{"y_2":1}}`, `{"x-1":{"y_2":2}}`, []string{"x-1.y_2"}},
		"whole":             {`1`, `2`, []string{"$"}},
		"whole types":       {`{}`, `[]`, []string{"$"}},
		"root array":        {`[1,[2]]`, `[1,[3]]`, []string{"[1][0]"}},
		"empty objects":     {`{"a":{},"b":{}}`, `{"a":{"x":1},"b":{}}`, []string{"a.x"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, pair := range [][2]string{{tc.a, tc.b}, {tc.b, tc.a}} {
				got, err := canon.Diff([]byte(pair[0]), []byte(pair[1]))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestDiffStopsAtTwenty(t *testing.T) {
	t.Parallel()
	var a, b strings.Builder
	var want []string
	for i := range 30 {
		fmt.Fprintf(&a, `,"k%02d":{"x":[1]}`, i)
		fmt.Fprintf(&b, `,"k%02d":{"x":[2]}`, i)
		if i < 20 {
			want = append(want, fmt.Sprintf("k%02d.x[0]", i))
		}
	}
	got, err := canon.Diff([]byte("{"+a.String()[1:]+"}"), []byte("{"+b.String()[1:]+"}"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	array := "[" + strings.Repeat("1,", 99) + "1]"
	for _, pair := range [][2]string{{array, "[]"}, {"[]", array}, {array, strings.ReplaceAll(array, "1", "[0]")}} {
		if got, err := canon.Diff([]byte(pair[0]), []byte(pair[1])); err != nil || len(got) != 20 || got[19] != "[19]" {
			t.Errorf("got %d paths, %v", len(got), err)
		}
	}
}

// TestDiffShortens keeps paths short, and without values, whatever names say.
func TestDiffShortens(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("n", 70)
	a := strings.Repeat(`{"`+name+`":`, 100) + `{"x":1,"y":"secret"}` + strings.Repeat("}", 100)
	b := strings.Replace(strings.Replace(a, `"secret"`, "0", 1), `"x":1`, `"x":2`, 1)
	got, err := canon.Diff([]byte(a), []byte(b))
	if err != nil {
		t.Fatal(err)
	}
	segment := `["` + strings.Repeat("n", 64) + `..."]`
	if diff := cmp.Diff([]string{strings.Repeat(segment, 4) + "..."}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDiffRefuses(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{{"{", "{}"}, {"{}", `{"a":1,"a":1}`}} {
		if _, err := canon.Diff([]byte(pair[0]), []byte(pair[1])); err == nil {
			t.Errorf("%q: accepted", pair)
		}
	}
}

func TestPayload(t *testing.T) {
	t.Parallel()
	got := string(canon.Payload(`a"b`, []byte(`{"n":1.0}`), nil)) + string(canon.Payload("k", []byte("1"), []byte("[ ]")))
	want := `{"kind":"a\"b","input":{"n":1.0}}` + `{"kind":"k","input":1,"effects":[ ]}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
