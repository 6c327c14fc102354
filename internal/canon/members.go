package canon

// A Member is one member of an object: its name unescaped, its value exactly
// as it stood in the source.
type Member struct {
	Name  string
	Value []byte
}

// Members splits a JSON object into its members, in the order of the source.
// Each Value is a sub-slice of raw, without the white space around it. Raw
// must pass the rules of [Check], with one level more allowed, so that the
// limit on depth holds for a value however it is wrapped. Anything but an
// object is [CodeInvalidJSON]. The error is an [*Error].
func Members(raw []byte) ([]Member, error) { return split(raw, '{', "an object") }

// Elements splits a JSON array as [Members] splits an object.
func Elements(raw []byte) ([][]byte, error) {
	parts, err := split(raw, '[', "an array")
	if err != nil {
		return nil, err
	}
	elements := make([][]byte, len(parts))
	for i, p := range parts {
		elements[i] = p.Value
	}
	return elements, nil
}

func split(raw []byte, opening byte, want string) ([]Member, error) {
	s := newScanner()
	defer s.release()
	s.split = true
	s.parts = make([]Member, 0, 8)
	if err := s.scan(raw, false, MaxDepth+1); err != nil {
		return nil, err.finish("")
	}
	s.pos = 0
	s.space()
	if raw[s.pos] != opening {
		return nil, failure(CodeInvalidJSON, s.pos, "the JSON value is not "+want, "Send "+want+".").finish("")
	}
	return s.parts, nil
}
