package canon_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/canon"
)

func TestMembers(t *testing.T) {
	t.Parallel()
	raw := " {\"b\" : 1.50 ,\"\\u0061\":\t{ \"x\" : [1, 2] , \"w\":0}\n,\"\\\"\":\"\\u0041\" ,\"\":null} "
	got, err := canon.Members([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	want := []canon.Member{
		{Name: "b", Value: []byte("1.50")},
		{Name: "a", Value: []byte(`{ "x" : [1, 2] , "w":0}`)},
		{Name: `"`, Value: []byte(`"\u0041"`)},
		{Name: "", Value: []byte("null")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestMembersShareTheSource: values are sub-slices, and appending to one does
// not write into the next.
func TestMembersShareTheSource(t *testing.T) {
	t.Parallel()
	raw := []byte(`{"a":1,"b":2}`)
	got, err := canon.Members(raw)
	if err != nil {
		t.Fatal(err)
	}
	if &got[0].Value[0] != &raw[5] {
		t.Error("the value is a copy")
	}
	_ = append(got[0].Value, "xxxx"...)
	if string(raw) != `{"a":1,"b":2}` {
		t.Errorf("the source became %s", raw)
	}
}

func TestMembersRefuses(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]place{
		"[]":                          {"invalid_json", 0, ""},
		` "a"`:                        {"invalid_json", 1, ""},
		"null":                        {"invalid_json", 0, ""},
		`{"a":1}{}`:                   {"trailing_data", 7, ""},
		`{"a":1,"a":2}`:               {"duplicate_member", 7, "a"},
		`{"a":{"b":1,"b":2}}`:         {"duplicate_member", 12, "a.b"},
		`{"a":[` + nested(200) + `]}`: {"too_deep", 205, "a" + strings.Repeat("[0]", 86) + "..."},
	} {
		members, err := canon.Members([]byte(raw))
		if err == nil || members != nil {
			t.Errorf("%s: accepted", raw)
			continue
		}
		if diff := cmp.Diff(want, placeOf(t, err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
	}
}

// TestDepthIsOfTheValue: a value as deep as Check allows is allowed wherever it
// comes from, wrapped in a request body too.
func TestDepthIsOfTheValue(t *testing.T) {
	t.Parallel()
	deepest := []byte(nested(canon.MaxDepth))
	if err := canon.Check(deepest); err != nil {
		t.Error(err)
	}
	body := canon.Payload("k", deepest, deepest)
	members, err := canon.Members(body)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(deepest), string(members[1].Value)); diff != "" {
		t.Errorf("input (-want +got):\n%s", diff)
	}
	if _, err := canon.Fingerprint("k", members[1].Value, members[2].Value); err != nil {
		t.Error(err)
	}
	if paths, err := canon.Diff(body, canon.Payload("k", deepest, nil)); err != nil || len(paths) != 1 {
		t.Errorf("Diff: %q, %v", paths, err)
	}
}

func TestElements(t *testing.T) {
	t.Parallel()
	got, err := canon.Elements([]byte(` [ {"b":1, "a":2} , 1.0,"x" ] `))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]byte{[]byte(`{"b":1, "a":2}`), []byte("1.0"), []byte(`"x"`)}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, err := canon.Elements([]byte("[]")); err != nil || len(got) != 0 {
		t.Errorf("empty: %q, %v", got, err)
	}
	if _, err := canon.Elements([]byte("{}")); err == nil {
		t.Error("an object was accepted")
	}
	_, err = canon.Elements([]byte(`[1,{"a":0,"a":0}]`))
	if diff := cmp.Diff(place{"duplicate_member", 10, "[1].a"}, placeOf(t, err)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
