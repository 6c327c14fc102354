package delta

// Merge adds a piece to v: text is appended, objects are merged member by member, array items by their "index" (those
// without one are appended), and of everything else the last that is not null counts. The names in replace are
// replaced, not appended, wherever they stand.
func (v *Value) Merge(piece *Value, replace map[string]bool) {
	switch {
	case !piece.Has():
	case !v.Has():
		*v = *piece
	case v.kind == '"' && piece.kind == '"':
		v.text = join(v.text, piece.text)
	case v.kind == '{' && piece.kind == '{':
		for i, name := range piece.names {
			v.mergeMember(name, piece.items[i], replace)
		}
	case v.kind == '[' && piece.kind == '[':
		for _, item := range piece.items {
			v.mergeItem(item, replace)
		}
	case v.kind == '"' && piece.kind == '[': // text first, parts later: keep both
		text := *v
		*v = Value{kind: '[', items: []*Value{textPart(&text)}}
		v.Merge(piece, replace)
	case v.kind == '[' && piece.kind == '"':
		v.items = append(v.items, textPart(piece))
	default:
		*v = *piece
	}
}

func textPart(text *Value) *Value {
	part := NewObject()
	part.Set("type", NewString("text"))
	part.Set("text", text)
	return part
}

func (v *Value) mergeMember(name string, piece *Value, replace map[string]bool) {
	old := v.Get(name)
	switch {
	case old == nil:
		v.Set(name, piece)
	case !piece.Has():
	case replace[name] && piece.IsString() && len(piece.text) == 0: // some servers repeat id and name as ""
	case replace[name]:
		v.Set(name, piece)
	default:
		old.Merge(piece, replace)
	}
}

func (v *Value) mergeItem(piece *Value, replace map[string]bool) {
	if index, ok := piece.Get("index").Int(); ok {
		for _, item := range v.items {
			if n, ok := item.Get("index").Int(); ok && n == index {
				item.Merge(piece, replace)
				return
			}
		}
	}
	v.items = append(v.items, piece)
}
