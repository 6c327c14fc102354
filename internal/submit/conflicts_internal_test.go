package submit

import "testing"

func TestPrefix(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"inv-2024-17":                          "inv-",
		"order:acme:42":                        "order:acme:",
		"0b3f7f52-0f4e-4f0e-8f6b-2b8f4f6b9c11": "uuid",
		"deadbeefdeadbeef":                     "uuid",
		"42":                                   "",
		"no digits at all, and very very long": "no digits at all, and very very ",
	} {
		if got := prefix(key); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
}
